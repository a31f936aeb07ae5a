"""`holdfast delete`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, find, find_subject


@click.command("delete")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_reference)
@click.option(
    "--all", "whole", is_flag=True, help="Delete all checkpoints of the subjects given as ID."
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted and do nothing.")
@click.pass_obj
def command(invocation: Invocation, ids: tuple[str, ...], whole: bool, dry_run: bool) -> None:
    """Delete single checkpoints, or all of a subject.

    A head that goes moves to its nearest ancestor that stays. The next `holdfast prune` frees the
    bytes that nothing else needs. Nothing is asked, pinned ones go, too, and there is no way back:
    look at what --dry-run shows first.
    """
    from holdfast.cli.rows import CHECKPOINT_COLUMNS, checkpoint_row
    from holdfast.model.moment import now
    from holdfast.server import shapes
    from holdfast.view.table import table
    from holdfast.view.words import count

    with invocation.store() as store:
        heads = {each.head.id for each in store.subjects() if each.head}
        if whole:
            named = [each for name in ids for each in store.list(find_subject(store, name))]
        else:
            named = [find(store, name) for name in ids]
        found = {each.id: each for each in named}
        if not dry_run:
            store.delete(*found.values())
        by_name = {each.subject for each in found.values() if str(each.subject) in ids}
        left = [each for one in by_name for each in store.list(one) if each.id not in found]
    time = now()
    invocation.show(
        {"deleted": [shapes.checkpoint(each) for each in found.values()], "dry_run": dry_run},
        lambda: table(
            CHECKPOINT_COLUMNS,
            (checkpoint_row(each, time, each.id in heads) for each in found.values()),
        ),
    )
    done = "would be deleted" if dry_run else "deleted"
    more = (
        f"; {len(left)} more of {', '.join(sorted(map(str, by_name)))} would go with --all"
        if left
        else ""
    )
    invocation.tell(f"{count(len(found), 'checkpoint')} {done}{more}")
