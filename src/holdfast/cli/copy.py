"""`holdfast copy`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import find_subject
from holdfast.cli.secret import from_files, secret_options

if TYPE_CHECKING:
    from holdfast.store.transfer.copying import CopyReport


@click.command("copy")
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option("--subject", metavar="SUBJECT", help="Only this subject; all of them if not given.")
@click.option("--dry-run", is_flag=True, help="Show what would be copied and do nothing.")
@click.option(
    "--plaintext", is_flag=True, help="Copy an encrypted store into one that is not encrypted."
)
@secret_options("from")
@secret_options("to")
@click.pass_obj
def command(
    invocation: Invocation,
    source: str,
    target: str,
    subject: str | None,
    dry_run: bool,
    plaintext: bool,
    from_passphrase_file: Path | None,
    from_key_file: Path | None,
    to_passphrase_file: Path | None,
    to_key_file: Path | None,
) -> None:
    """Bring the store DST up to date with the store SRC.

    Only what DST lacks is carried over, and nothing is removed there. What was interrupted goes on
    where it stopped. A head in DST follows that of SRC, unless somebody went on from another
    checkpoint there. DST is made if there is none, unless SRC is encrypted.
    """
    from holdfast.cli.progress import bar
    from holdfast.model.errors import Denied, Partial, UsageError
    from holdfast.view.words import count

    if "store" in invocation.options:
        raise UsageError("copy is told both stores", hint="leave --store out")
    opens = from_files(from_passphrase_file, from_key_file, new=False)
    with invocation.open(source, create=False, secret=opens) as here:
        # First: for a subject that is not there, no store is made.
        wanted = None if subject is None else find_subject(here, subject)
        secret = from_files(to_passphrase_file, to_key_file, new=False)
        # An encrypted one is made by `init`: whoever copies into a new one by mistake must not
        # find everything readable there.
        create = not dry_run and (plaintext or not here.encrypted)
        with invocation.open(target, create=create, secret=secret) as there:
            if here.encrypted and not there.encrypted and not plaintext:
                raise Denied(
                    f"{source} is encrypted, and {target} is not",
                    hint="make it with `holdfast init --encrypt`, or say --plaintext",
                )
            with bar("copying", quiet=invocation.json or dry_run) as progress:
                report = here.copy_to(there, wanted, dry_run=dry_run, progress=progress)
    invocation.show(_shape(report), lambda: _page(report))
    if report.failed:
        raise Partial(
            f"{count(len(report.failed), 'checkpoint')} could not be copied",
            hint="`holdfast verify --deep` on the source says what is damaged",
        )


def _shape(report: CopyReport) -> dict[str, object]:
    from holdfast.server import shapes

    return {
        "copied": [shapes.checkpoint(one) for one in report.copied],
        "already": report.already,
        "moved": list(report.moved),
        "apart": [{"subject": subject, "why": why} for subject, why in report.apart],
        "failed": [
            {"checkpoint": shapes.checkpoint(one), "why": why} for one, why in report.failed
        ],
        "transferred_bytes": report.transferred_bytes,
        "dry_run": report.dry_run,
    }


def _page(report: CopyReport) -> str:
    from holdfast.cli.rows import line
    from holdfast.view.words import count, printable, size

    content = size(sum(one.size_bytes for one in report.copied))
    if report.dry_run:
        found = [line(one) for one in report.copied]
        sentence = f"would copy {count(len(report.copied), 'checkpoint')} ({content} of content)"
    else:
        found = []
        sentence = (
            f"copied {count(len(report.copied), 'checkpoint')}: {content} of content,"
            f" {size(report.transferred_bytes)} carried over"
        )
    if report.already:
        sentence += f"; {report.already} {'was' if report.already == 1 else 'were'} there already"
    found.append(sentence)
    if report.moved:
        follows = "would follow" if report.dry_run else "followed"
        found.append(f"{count(len(report.moved), 'head')} {follows}")
    found += [f"the head of {subject} stays: {printable(why)}" for subject, why in report.apart]
    found += [f"not copied: {line(one)}: {printable(why)}" for one, why in report.failed]
    return "\n".join(found)
