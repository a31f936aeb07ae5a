"""`holdfast fork`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, files_option, find, trust_option
from holdfast.model.errors import UsageError


@click.command("fork")
@click.argument("id", metavar="ID", shell_complete=complete_reference)
@click.argument("name", required=False)
@files_option
@trust_option
@click.pass_obj
def command(
    invocation: Invocation,
    id: str,  # noqa: A002
    name: str | None,
    files: bool,
    trust: bool,
) -> None:
    """Start a new subject from a checkpoint.

    NAME is the new subject's name; its kind is that of the checkpoint. No content is copied.
    A sandbox is found by its id and opened by its token: without NAME, a copy of one gets both,
    and is as the other was for whoever attaches to it through a server of this store.
    """
    from holdfast.cli import files as states
    from holdfast.cli.rows import line
    from holdfast.sandbox import keeping
    from holdfast.server import shapes

    if kept := states.meant(invocation, id, files):
        states.fork(invocation, kept, _needed(name))
        return
    with invocation.store() as store:
        origin = find(store, id)
        if name is None and origin.subject.kind == "sandbox":
            identity, token = keeping.begin_copy(store, origin)
            shown = {"sandboxes": [{"id": identity, "token": token}]}
            invocation.show(shown, lambda: f"sandbox/{identity}\nits token: {token}")
            return
        keeping.check_copy(origin, _needed(name))
        checkpoint = store.fork(origin, _needed(name), trust=trust)
    invocation.show(
        {"checkpoint": shapes.checkpoint(checkpoint)}, lambda: f"head: {line(checkpoint)}"
    )


def _needed(name: str | None) -> str:
    if name is None:
        raise UsageError("the new subject needs a name", hint="holdfast fork ID NAME")
    return name
