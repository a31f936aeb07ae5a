"""`holdfast restore`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, find, trust_option


@click.command("restore")
@click.argument("id", metavar="ID", shell_complete=complete_reference)
@trust_option
@click.pass_obj
def command(invocation: Invocation, id: str, trust: bool) -> None:  # noqa: A002
    """Move a subject's head to one of its checkpoints.

    The next checkpoint of the subject descends from there; `holdfast undo` takes the move back.
    """
    from holdfast.cli.rows import line
    from holdfast.server import shapes

    with invocation.store() as store:
        checkpoint = store.restore(find(store, id), trust=trust)
    invocation.show(
        {"checkpoint": shapes.checkpoint(checkpoint)}, lambda: f"head: {line(checkpoint)}"
    )
