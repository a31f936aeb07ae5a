"""`holdfast verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation

if TYPE_CHECKING:
    from holdfast.model.report import Verification


@click.command("verify")
@click.option("--deep", is_flag=True, help="Read every byte, not only the descriptions.")
@click.pass_obj
def command(invocation: Invocation, deep: bool) -> None:
    """Check that the store holds what was written.

    Each problem is told with the checkpoints that it affects; then the exit code is 6.
    """
    from holdfast.cli.progress import bar
    from holdfast.model.errors import Corrupt
    from holdfast.server import shapes
    from holdfast.server.words import count

    with invocation.store() as store, bar("verifying", quiet=invocation.json) as progress:
        result = store.verify(deep=deep, progress=progress)
    invocation.show(shapes.verification(result), lambda: _page(result))
    if not result.ok:
        raise Corrupt(
            f"{count(len(result.problems), 'problem')} found",
            hint="what is not named above can still be restored",
        )


def _page(result: Verification) -> str:
    from holdfast.cli.table import Column, table
    from holdfast.server.words import count, printable, size

    read = f", {size(result.bytes_read)} read" if result.bytes_read else ""
    found = f"{count(result.checkpoints, 'checkpoint')}, {count(result.chunks, 'chunk')}{read}"
    notes = [f"note: {printable(note)}" for note in result.notes]
    if result.ok:
        return "\n".join([f"ok: {found}", *notes])
    problems = table(
        (Column("WHERE", "bold"), Column("WHAT", "red"), Column("AFFECTS"), Column("HINT", "dim")),
        ((each.where, each.what, ", ".join(each.affects), each.hint) for each in result.problems),
    )
    return "\n".join([problems, f"checked: {found}", *notes])
