"""`holdfast undo`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_subject, find_subject


@click.command("undo")
@click.argument("subject", shell_complete=complete_subject)
@click.pass_obj
def command(invocation: Invocation, subject: str) -> None:
    """Take back the last move of a subject's head.

    The checkpoint that the head leaves stays in the store. An undo is a move, too: a second undo
    takes the first one back, and so does again what was undone.
    """
    from holdfast.cli.rows import line
    from holdfast.server import shapes

    with invocation.store() as store:
        wanted = find_subject(store, subject)
        move = store.undo(wanted)
        head = store.head(wanted)
    invocation.show(
        {"move": shapes.move(move), "head": shapes.checkpoint(head) if head else None},
        lambda: f"head: {line(head)}" if head else f"{wanted} has no head now",
    )
