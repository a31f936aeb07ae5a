"""`holdfast export`."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.podman import IMAGE, IMAGE_ID, tell
from holdfast.cli.reference import complete_reference, find

if TYPE_CHECKING:
    from holdfast.store.transfer.exporting import ExportReport


@click.command("export")
@click.argument("id", metavar="ID", shell_complete=complete_reference)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option("--ancestors", is_flag=True, help="Take everything that it descends from along.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["holdfast", "podman"]),
    default="holdfast",
    help="What kind of file: Holdfast's own, or, of a container, one that Podman restores.",
)
@IMAGE
@IMAGE_ID
@click.option("--force", is_flag=True, help="Replace FILE if there is one.")
@click.pass_obj
def command(
    invocation: Invocation,
    id: str,  # noqa: A002
    file: str,
    ancestors: bool,
    form: str,
    image: str | None,
    image_id: str | None,
    force: bool,
) -> None:
    """Write a checkpoint to a file that any store can import.

    FILE appears when it is complete; `-` is stdout, for a pipe. The file is not encrypted, also
    when the store is.
    """
    from holdfast.cli.progress import bar
    from holdfast.model.errors import UsageError

    if form == "podman":
        _for_podman(invocation, id, Path(file), image, image_id, force)
        return
    piped = file == "-"
    if piped and invocation.json:
        raise UsageError("--json and an archive on stdout do not go together", hint="name a file")
    if piped and sys.stdout.isatty():
        raise UsageError(
            "an archive is no text for a terminal", hint="name a file, or pipe it somewhere"
        )
    with invocation.store() as store, bar("exporting", quiet=invocation.json) as progress:
        found = find(store, id)
        target = sys.stdout.buffer if piped else file
        report = store.export(found, target, ancestors=ancestors, replace=force, progress=progress)
        if store.encrypted:
            invocation.tell("note: the store is encrypted, and the file is not")
    if piped:
        invocation.tell(_sentence(report, "stdout"))
    else:
        invocation.show(_shape(report, file), lambda: _sentence(report, file))


def _for_podman(
    invocation: Invocation,
    reference: str,
    file: Path,
    image: str | None,
    image_id: str | None,
    force: bool,
) -> None:
    from holdfast.model.errors import Unsupported, UsageError
    from holdfast.oci.podman.exchange import write_archive
    from holdfast.oci.podman.outgoing import Image
    from holdfast.oci.store_vault import StoreVault, saved_of

    if str(file) == "-":
        raise UsageError("an archive for Podman cannot go through a pipe", hint="name a file")
    with invocation.store() as store, TemporaryDirectory(prefix="holdfast-") as folder:
        found = find(store, reference)
        if found.subject.kind != "container":
            raise Unsupported(
                f"{found.subject} is no container, and Podman restores nothing else",
                hint="leave --format out, and use `holdfast import` where it is to go",
            )
        work = Path(folder)
        vault = StoreVault(lambda: store, work, work)
        wanted = Image(image, image_id)
        done = write_archive(vault, saved_of(found), wanted, file, work, replace=force)
    tell(invocation, found.id, str(found.subject), file, done)


def _shape(report: ExportReport, file: str) -> dict[str, object]:
    from holdfast.server import shapes

    return {
        "file": file,
        "checkpoints": [shapes.checkpoint(one) for one in report.checkpoints],
        "chunks": report.chunks,
        "content_bytes": report.content_bytes,
        "archive_bytes": report.archive_bytes,
    }


def _sentence(report: ExportReport, file: str) -> str:
    from holdfast.cli.rows import line
    from holdfast.view.words import count, printable, size

    more = len(report.checkpoints) - 1
    along = f" and {count(more, 'ancestor')}" if more else ""
    return (
        f"exported {line(report.checkpoints[-1])}{along} to {printable(file)}"
        f" ({size(report.archive_bytes)})"
    )
