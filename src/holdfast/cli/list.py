"""`holdfast list`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.quantities import Number
from holdfast.cli.reference import complete_subject, find_subject
from holdfast.model.subject import KINDS, Kind, Subject


@click.command("list")
@click.argument("subject", required=False, shell_complete=complete_subject)
@click.option("--kind", type=click.Choice(KINDS), help="Only subjects of this kind.")
@click.option("--limit", type=Number(1), metavar="N", help="Only the newest N.")
@click.option("--files", is_flag=True, help="List states that are kept as files instead.")
@click.pass_obj
def command(
    invocation: Invocation,
    subject: str | None,
    kind: Kind | None,
    limit: int | None,
    files: bool,
) -> None:
    """List checkpoints, newest first.

    With SUBJECT (kind/name), only its checkpoints.
    """
    from holdfast.cli.files import meant

    if files or (subject is not None and meant(invocation, subject, False)):
        _list_files(
            invocation, Subject.parse(subject) if subject is not None else None, kind, limit
        )
    else:
        _list_store(invocation, subject, kind, limit)


def _list_store(
    invocation: Invocation, subject: str | None, kind: Kind | None, limit: int | None
) -> None:
    from holdfast.cli.rows import CHECKPOINT_COLUMNS, checkpoint_row
    from holdfast.model.moment import now
    from holdfast.server import shapes
    from holdfast.view.table import table

    with invocation.store() as store:
        wanted = None if subject is None else find_subject(store, subject)
        found = store.list(subject=wanted, kind=kind, limit=limit)
        heads = {each.head.id for each in store.subjects() if each.head}
        place = store.url
        invocation.doubt(store)
    time = now()
    invocation.show(
        shapes.checkpoints(found),
        lambda: (
            table(CHECKPOINT_COLUMNS, (checkpoint_row(c, time, c.id in heads) for c in found))
            if found
            else ""
        ),
    )
    if not found:
        what = f"{kind} checkpoints" if kind else "checkpoints"
        whose = f" of {wanted}" if wanted else ""
        files = "; `--files` lists states kept as files" if kind in (None, "state") else ""
        invocation.tell(f"no {what}{whose} in {place}{files}")


def _list_files(
    invocation: Invocation, wanted: Subject | None, kind: Kind | None, limit: int | None
) -> None:
    from holdfast.cli import files

    found = [
        each
        for each in files.find(invocation.environ)
        if kind in (None, "state") and wanted in (None, Subject("state", each.session_id))
    ][:limit]
    invocation.show({"files": [files.shape(each) for each in found]}, lambda: files.page(found))
    if not found:
        invocation.tell("no states are kept as files")
