"""`holdfast fork`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, files_option, find, trust_option


@click.command("fork")
@click.argument("id", metavar="ID", shell_complete=complete_reference)
@click.argument("name")
@files_option
@trust_option
@click.pass_obj
def command(
    invocation: Invocation,
    id: str,  # noqa: A002
    name: str,
    files: bool,
    trust: bool,
) -> None:
    """Start a new subject from a checkpoint.

    NAME is the new subject's name; its kind is that of the checkpoint. No content is copied.
    """
    from holdfast.cli import files as states
    from holdfast.cli.rows import line
    from holdfast.server import shapes

    if kept := states.meant(invocation, id, files):
        states.fork(invocation, kept, name)
        return
    with invocation.store() as store:
        checkpoint = store.fork(find(store, id), name, trust=trust)
    invocation.show(
        {"checkpoint": shapes.checkpoint(checkpoint)}, lambda: f"head: {line(checkpoint)}"
    )
