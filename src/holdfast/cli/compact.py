"""`holdfast container compact`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation


@click.command("compact")
@click.argument("container")
@click.option("--zstd", is_flag=True, help="Compress the newest checkpoint, too.")
@click.pass_obj
def compact(invocation: Invocation, container: str, zstd: bool) -> None:
    """Make a container's newest checkpoint whole, and drop what nothing leans on any more.

    CONTAINER is named as for `checkpoint`, and need not run; if it does, it is not frozen for this.
    Of the checkpoints that are kept, the older ones are compressed. A compressed checkpoint is
    expanded when the container comes back, which takes longer.
    """
    from holdfast.oci.compaction import Compacted, Plan
    from holdfast.oci.compaction import compact as carry_out
    from holdfast.oci.overview import Overview
    from holdfast.oci.path_vault import PathVault
    from holdfast.view.words import size

    overview = Overview(invocation.environ)
    vault, newest = overview.frozen(container)
    if isinstance(vault, PathVault):
        with vault.tidying(newest.subject, wait=True):
            done, trouble = carry_out(
                vault, newest.subject, overview.policy, "archive" if zstd else "resting"
            )
        if trouble:
            raise trouble[0]
    else:
        done = Compacted(Plan())
        invocation.tell("in a store nothing leans on anything; `holdfast prune` drops old ones")
    invocation.show(
        {
            "subject": str(newest.subject),
            "folded": list(done.plan.fold),
            "compressed": list(done.plan.compress),
            "dropped_count": done.dropped,
            "bytes_before": done.bytes_before,
            "bytes_after": done.bytes_after,
        },
        lambda: (
            f"{newest.subject}: {len(done.plan.fold)} made whole, {len(done.plan.compress)} "
            f"compressed, {done.dropped} dropped; "
            f"{size(done.bytes_before)} became {size(done.bytes_after)}"
        ),
    )
