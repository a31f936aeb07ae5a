"""`holdfast container export` and `import`: to Podman, and from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation

if TYPE_CHECKING:
    from holdfast.oci.podman.outgoing import Exported

IMAGE = click.option(
    "--image", metavar="NAME", help="For Podman: the image that the container is made of."
)
IMAGE_ID = click.option(
    "--image-id", metavar="ID", help="For Podman: that image's id, as `podman images` has it."
)


@click.command("export")
@click.argument("container")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format",
    "form",
    type=click.Choice(["podman"]),
    default="podman",
    show_default=True,
    help="What kind of file.",
)
@IMAGE
@IMAGE_ID
@click.option("--force", is_flag=True, help="Replace FILE if there is one.")
@click.pass_obj
def export(
    invocation: Invocation,
    container: str,
    file: Path,
    form: str,
    image: str | None,
    image_id: str | None,
    force: bool,
) -> None:
    """Write the newest checkpoint of a container to a file that Podman restores.

    CONTAINER is its id, its subject, or the last part of that; it need not run. Podman has to
    know the image: runc is seldom told of it. Then `podman container restore --import FILE`.
    """
    from holdfast.oci.overview import Overview
    from holdfast.oci.podman.exchange import write_archive
    from holdfast.oci.podman.outgoing import Image

    overview = Overview(invocation.environ)
    vault, saved = overview.frozen(container)
    work = Path(overview.policy.work_path)
    done = write_archive(vault, saved, Image(image, image_id), file, work, replace=force)
    tell(invocation, saved.id, str(saved.subject), file, done)


def tell(invocation: Invocation, checkpoint: str, subject: str, file: Path, done: Exported) -> None:
    """Say what was written; what Podman cannot be told makes the exit code 9."""
    from holdfast.view.words import printable, size

    invocation.show(
        {
            "file": str(file),
            "id": checkpoint,
            "subject": subject,
            "archive_bytes": done.archive_bytes,
            "replaced": list(done.replaced),
        },
        lambda: (
            f"exported {checkpoint} {subject} to {printable(str(file))} "
            f"({size(done.archive_bytes)})"
        ),
    )
    for folder in done.replaced:
        invocation.tell(
            f"{printable(folder)} was made anew; under Podman what the image has in it comes back"
        )
    if done.replaced:
        click.get_current_context().exit(9)


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--name", help="Which container it becomes; without it, as Podman called it.")
@click.option("--trust", is_flag=True, help="Vouch for the file: nobody has signed it.")
@click.pass_obj
def import_(invocation: Invocation, file: Path, name: str | None, trust: bool) -> None:
    """Take in a checkpoint that `podman container checkpoint --export` wrote.

    The next container that is created under this name, with the same image, command and mounts,
    goes on where Podman's was.
    """
    from holdfast.model.errors import Denied, UsageError
    from holdfast.oci.overview import Overview
    from holdfast.oci.podman.exchange import read_archive
    from holdfast.oci.podman.incoming import name_of
    from holdfast.view.words import printable, size

    called = name or name_of(file)
    if called is None:
        raise UsageError("the archive does not say what its container was called", hint="--name")
    if not trust:
        raise Denied(
            f"{file} holds programs that will run as it says, and nobody has signed it",
            hint="say --trust if you know where it comes from",
        )
    vault, subject = Overview(invocation.environ).room_for(called)
    saved = read_archive(vault, subject, file, reason="from Podman")
    invocation.show(
        {"id": saved.id, "subject": str(subject), "size_bytes": saved.size_bytes},
        lambda: (
            f"imported {saved.id} {subject} from {printable(str(file))} ({size(saved.size_bytes)})"
        ),
    )
