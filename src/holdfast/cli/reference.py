"""How checkpoints and subjects are named on the command line, and completed by the shell."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from holdfast.cli.invocation import Invocation

trust_option = click.option(
    "--trust", is_flag=True, help="Accept a checkpoint that an unknown key has signed."
)


def complete_subject(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The subjects in the store."""
    return [item for item in _items(ctx) if "/" in item.value and item.value.startswith(incomplete)]


def complete_reference(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The subjects and the short ids in the store."""
    return [item for item in _items(ctx) if item.value.startswith(incomplete)]


def _items(ctx: click.Context) -> list[CompletionItem]:
    from holdfast.model.errors import HoldfastError
    from holdfast.server.words import count, printable

    try:
        with ctx.ensure_object(Invocation).store() as store:
            subjects = [
                CompletionItem(str(each.subject), help=count(each.count, "checkpoint"))
                for each in store.subjects()
            ]
            checkpoints = [
                CompletionItem(each.short, help=f"{each.subject} {printable(each.reason)}")
                for each in store.list(limit=100)
            ]
    except HoldfastError:
        return []  # a person who presses TAB wants words or silence, not an error
    return subjects + checkpoints
