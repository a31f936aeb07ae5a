"""`holdfast verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, trust_option

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.report import Verification


@click.command("verify")
@click.argument("ids", metavar="[ID]...", nargs=-1, shell_complete=complete_reference)
@click.option("--deep", is_flag=True, help="Read every byte, not only the descriptions.")
@click.option(
    "--drill", is_flag=True, help="Bring checkpoints back in a scratch place, and compare."
)
@trust_option
@click.pass_obj
def command(
    invocation: Invocation, ids: tuple[str, ...], deep: bool, drill: bool, trust: bool
) -> None:
    """Check that the store holds what was written.

    Each problem is told with the checkpoints that it affects; then the exit code is 6. With --drill
    the checkpoints ID, or the heads of all subjects, are brought back where they can do no harm: a
    session in a new worker, a sandbox in a scratch one, frozen again and compared. With both, every
    byte is read first.
    """
    if ids and not drill:
        raise click.UsageError("checkpoints are only named together with --drill")
    if drill and not deep:
        from holdfast.cli import drills

        drills.run(invocation, ids, trust=trust)
        return
    from holdfast.cli.progress import bar
    from holdfast.model.errors import Corrupt
    from holdfast.server import shapes
    from holdfast.view import verified
    from holdfast.view.words import count

    with invocation.store() as store, bar("verifying", quiet=invocation.json) as progress:
        result = store.verify(deep=deep, progress=progress)
        everything = store.list()
        verified.note(store.url, result)
    if drill:
        from holdfast.cli import drills

        told = shapes.verification(result)
        drills.run(invocation, ids, trust=trust, before=(told, _page(result, everything)))
    else:
        invocation.show(shapes.verification(result), lambda: _page(result, everything))
    if not result.ok:
        raise Corrupt(
            f"{count(len(result.problems), 'problem')} found",
            hint="what is not named above can still be restored",
        )


def _page(result: Verification, everything: list[Checkpoint]) -> str:
    from holdfast.view.words import count, printable, size

    found = count(result.checkpoints, "checkpoint")
    if result.deep:
        content = sum(each.size_bytes for each in everything)
        found += (
            f", {count(result.chunks, 'chunk')},"
            f" {size(result.bytes_read)} stored ({size(content)} of content)"
        )
    notes = [f"note: {printable(note)}" for note in result.notes]
    if result.ok:
        return "\n".join([f"ok: {found}", *notes])
    names = {each.id: f"{each.short} {each.subject}" for each in everything}
    problems = []
    for each in result.problems:
        # Lines, not a table: what is wrong must be read to its end.
        problems.append(f"problem: {printable(str(each))}")
        affected = ", ".join(names.get(id_, id_) for id_ in each.affects)
        problems += [f"  affects: {printable(affected)}"] if affected else []
        problems += [f"  hint: {printable(each.hint)}"] if each.hint else []
    return "\n".join([*problems, f"checked: {found}", *notes])
