"""`holdfast delete`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, find


@click.command("delete")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_reference)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted and do nothing.")
@click.pass_obj
def command(invocation: Invocation, ids: tuple[str, ...], dry_run: bool) -> None:
    """Delete single checkpoints.

    A head that goes moves to its nearest ancestor that stays. The next `holdfast prune` frees the
    bytes that nothing else needs.
    """
    from holdfast.cli.rows import CHECKPOINT_COLUMNS, checkpoint_row
    from holdfast.model.moment import now
    from holdfast.server import shapes
    from holdfast.view.table import table
    from holdfast.view.words import count

    with invocation.store() as store:
        heads = {each.head.id for each in store.subjects() if each.head}
        found = {each.id: each for each in (find(store, name) for name in ids)}
        if not dry_run:
            store.delete(*found.values())
    time = now()
    invocation.show(
        {"deleted": [shapes.checkpoint(each) for each in found.values()], "dry_run": dry_run},
        lambda: table(
            CHECKPOINT_COLUMNS,
            (checkpoint_row(each, time, each.id in heads) for each in found.values()),
        ),
    )
    done = "would be deleted" if dry_run else "deleted"
    invocation.tell(f"{count(len(found), 'checkpoint')} {done}")
