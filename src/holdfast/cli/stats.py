"""`holdfast stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation

if TYPE_CHECKING:
    from holdfast.store.collect import PruneReport
    from holdfast.store.usage import Usage


@click.command("stats")
@click.pass_obj
def command(invocation: Invocation) -> None:
    """Show what the store holds and what that takes on disk.

    What prune would free is told for its default policy: the last 50 of each subject and
    everything tagged stay.
    """
    from dataclasses import asdict

    with invocation.store() as store:
        usage = store.usage()
        plan = store.prune(dry_run=True)
        invocation.doubt(store)
    document = {
        **asdict(usage),
        "disk_bytes": usage.disk_bytes,
        "dedup_ratio": usage.dedup_ratio,
        "prune_would_remove": len(plan.removed),
        "prune_would_free_bytes": plan.reclaimed_bytes,
    }
    invocation.show(document, lambda: _page(usage, plan))


def _page(usage: Usage, plan: PruneReport) -> str:
    from holdfast.view.table import Column, table
    from holdfast.view.words import count, size

    ratio = f" (dedup ratio {usage.dedup_ratio:g})" if usage.dedup_ratio else ""
    removed = count(len(plan.removed), "checkpoint")
    freed = size(plan.reclaimed_bytes)
    rows = [
        (
            "holds",
            f"{count(usage.checkpoints, 'checkpoint')} of {count(usage.subjects, 'subject')}",
        ),
        ("content", size(usage.content_bytes)),
        ("unique", f"{size(usage.unique_bytes)} in {count(usage.chunks, 'chunk')}{ratio}"),
        ("on disk", size(usage.disk_bytes)),
        ("  packs", f"{size(usage.packs_bytes)} in {count(usage.packs, 'file')}"),
        ("  log", size(usage.log_bytes)),
        ("prune", f"would remove {removed} and free {freed}"),
    ]
    return table((Column("STORE", "dim"), Column(usage.store)), rows)
