"""`holdfast fork`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, find, trust_option


@click.command("fork")
@click.argument("id", metavar="ID", shell_complete=complete_reference)
@click.argument("name")
@trust_option
@click.pass_obj
def command(invocation: Invocation, id: str, name: str, trust: bool) -> None:  # noqa: A002
    """Start a new subject from a checkpoint.

    NAME is the new subject's name; its kind is that of the checkpoint. No content is copied.
    """
    from holdfast.cli.rows import line
    from holdfast.server import shapes

    with invocation.store() as store:
        checkpoint = store.fork(find(store, id), name, trust=trust)
    invocation.show(
        {"checkpoint": shapes.checkpoint(checkpoint)}, lambda: f"head: {line(checkpoint)}"
    )
