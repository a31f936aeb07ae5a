"""Between a vault and a file: whole archives out, whole checkpoints in, and nothing left behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

from holdfast.model.errors import from_os_error
from holdfast.model.subject import Subject
from holdfast.oci.podman.incoming import take_in
from holdfast.oci.podman.outgoing import Exported, Image, export
from holdfast.oci.private import private_folder
from holdfast.oci.vault import WORK, Saved, Vault
from holdfast.runtime.trial import clear
from holdfast.store.transfer.exporting import check_target


def write_archive(
    vault: Vault, saved: Saved, image: Image, file: Path, work: Path, *, replace: bool
) -> Exported:
    """Write a checkpoint to a file that appears when it is complete; raises Conflict, BadInput,
    Corrupt."""
    check_target(file, replace=replace)
    draft = file.with_name(f".{file.name}.holdfast")
    try:
        draft.unlink(missing_ok=True)  # of a process that died
        private_folder(work)
        with tempfile.TemporaryDirectory(prefix="export-", dir=work) as scratch:
            fetched = Path(scratch, "fetched")
            fetched.mkdir()
            with vault.reading(saved.subject):
                done = export(vault.fetch(saved, fetched), saved, image, draft, Path(scratch))
            draft.rename(file)
    except OSError as error:
        raise from_os_error(error, f"writing {file}") from error
    finally:
        draft.unlink(missing_ok=True)
    return done


def read_archive(vault: Vault, subject: Subject, file: Path, reason: str) -> Saved:
    """Make a checkpoint of an archive; raises BadInput, Corrupt, and then there is none."""
    staged = vault.stage()
    try:
        take_in(file, staged)
        clear(staged / WORK)
        return vault.save(subject, staged, reason)
    except BaseException:
        clear(staged)
        raise
