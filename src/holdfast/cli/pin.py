"""`holdfast pin`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, find


@click.command("pin")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_reference)
@click.pass_obj
def command(invocation: Invocation, ids: tuple[str, ...]) -> None:
    """Keep checkpoints whatever the retention says."""
    from holdfast.cli.rows import line
    from holdfast.server import shapes

    with invocation.store() as store:
        chosen = [find(store, each) for each in ids]
        for checkpoint in chosen:
            store.pin(checkpoint)
        pinned = [store.resolve(each.id) for each in chosen]
    invocation.show(
        shapes.checkpoints(pinned),
        lambda: "\n".join(f"pinned: {line(each)}" for each in pinned),
    )
