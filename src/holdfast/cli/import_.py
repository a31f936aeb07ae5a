"""`holdfast import`."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from holdfast.cli.invocation import Invocation

if TYPE_CHECKING:
    from holdfast.store.transfer.importing import ImportReport


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--trust",
    is_flag=True,
    help="Vouch for checkpoints that an unknown key has signed: restoring them will not ask again.",
)
@click.option("--dry-run", is_flag=True, help="Check the file and list what is in it, no more.")
@click.pass_obj
def command(invocation: Invocation, file: str, trust: bool, dry_run: bool) -> None:
    """Take in the checkpoints of a file that `export` wrote.

    Everything is verified first, and when something is wrong nothing is taken in; `-` is stdin.
    Who signed a checkpoint stays with it: one by an unknown key is listed, and restored only with
    --trust. What is here already stays as it came, whatever --trust says.
    """
    from holdfast.cli.progress import bar
    from holdfast.server import shapes

    with (
        _opened(file) as source,  # first: for a file that is not there, no store is made
        invocation.store(create=not dry_run) as store,
        bar("checking" if dry_run else "importing", quiet=invocation.json) as progress,
    ):
        report = store.import_archive(source, trust=trust, dry_run=dry_run, progress=progress)
        head = store.head(report.checkpoint.subject)
    behind = head is not None and head.id != report.checkpoint.id
    invocation.show(shapes.imported(report), lambda: _page(report, behind, trust))


def _opened(file: str) -> AbstractContextManager[BinaryIO]:
    from holdfast.model.errors import from_path_error

    if file == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise from_path_error(error, "reading the archive") from error


def _page(report: ImportReport, behind: bool, trust: bool) -> str:
    from holdfast.cli.rows import CHECKPOINT_COLUMNS, checkpoint_row
    from holdfast.model.moment import now
    from holdfast.view.table import table
    from holdfast.view.words import count

    time = now()
    listed = (*report.already, *report.imported) if report.dry_run else report.imported
    rows = table(CHECKPOINT_COLUMNS, [checkpoint_row(one, time, False) for one in listed])
    done = "would import" if report.dry_run else "imported"
    sentence = f"{done} {count(len(report.imported), 'checkpoint')}"
    if report.already:
        sentence += f"; {len(report.already)} {'is' if len(report.already) == 1 else 'are'} here"
        sentence += " already"
    lines = [rows, sentence] if listed else [sentence]
    strange = [one for one in report.already if one.foreign]
    if trust and strange and not report.dry_run:
        kept = "checkpoint is" if len(strange) == 1 else "checkpoints are"
        lines.append(
            f"{len(strange)} {kept} here already as foreign, and --trust changes nothing about"
            f" that; `holdfast restore {strange[-1].short} --trust` accepts one, `holdfast key"
            " import` everything its maker signs"
        )
    elif report.checkpoint.foreign:
        lines.append("foreign: signed by a key that is not known here; restoring asks for --trust")
    if behind and not report.dry_run:
        subject, short = report.checkpoint.subject, report.checkpoint.short
        lines.append(f"the head of {subject} stays; `holdfast restore {short}` moves it")
    return "\n".join(lines)
