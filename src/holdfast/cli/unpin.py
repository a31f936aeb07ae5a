"""`holdfast unpin`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, find


@click.command("unpin")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_reference)
@click.pass_obj
def command(invocation: Invocation, ids: tuple[str, ...]) -> None:
    """Leave pinned checkpoints to the retention again."""
    from holdfast.cli.rows import line
    from holdfast.server import shapes

    with invocation.store() as store:
        chosen = [find(store, each) for each in ids]
        for checkpoint in chosen:
            store.unpin(checkpoint)
        unpinned = [store.resolve(each.id) for each in chosen]
    invocation.show(
        shapes.checkpoints(unpinned),
        lambda: "\n".join(f"unpinned: {line(each)}" for each in unpinned),
    )
