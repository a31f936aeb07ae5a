"""Carrying: checkpoints on their way to other stores, in files or directly."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import from_path_error
from holdfast.model.subject import Subject
from holdfast.store import references
from holdfast.store.faces.opened import Opened, Progress, Reference, subject_of
from holdfast.store.transfer import copying, exporting, importing
from holdfast.store.transfer.copying import CopyReport
from holdfast.store.transfer.exporting import ExportReport
from holdfast.store.transfer.importing import ImportReport


class Carrying(Opened):
    """The verbs export and import, and copying from store to store."""

    def export(
        self,
        reference: Reference,
        target: str | os.PathLike[str] | BinaryIO,
        *,
        ancestors: bool = False,
        replace: bool = True,
        progress: Progress | None = None,
    ) -> ExportReport:
        """Write a checkpoint, and with `ancestors` all it descends from, to a file or a stream that
        any store can import. A file appears when it is complete."""
        with self._holding(), ExitStack() as stack:
            record = references.resolve(self._ledger.refresh(), reference)
            if isinstance(target, str | os.PathLike):
                target = stack.enter_context(exporting.new_file(Path(target), replace=replace))
            return exporting.export(self._ledger, record, target, ancestors, progress)

    def import_(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        *,
        trust: bool = False,
        progress: Progress | None = None,
    ) -> Checkpoint:
        """Take in what `export` wrote, from a file or a stream; gives the checkpoint it is about.

        Everything is verified first; when something is wrong, nothing is taken in. A checkpoint
        that an unknown key has signed stays foreign, unless `trust` vouches for it.
        """
        return self.import_archive(source, trust=trust, progress=progress).checkpoint

    def import_archive(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        *,
        trust: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Like `import_`, and tells what came; with `dry_run`, what would come."""
        with ExitStack() as stack:
            if isinstance(source, str | os.PathLike):
                try:
                    source = stack.enter_context(Path(source).open("rb"))
                except OSError as error:
                    raise from_path_error(error, "reading the archive") from error
            if dry_run:
                return importing.examine(self._ledger, source, progress)
            return importing.import_archive(self._ledger, source, trust=trust, progress=progress)

    def copy_to(
        self,
        other: Opened,
        subject: Subject | str | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> CopyReport:
        """Bring another store up to date with this one, or with one subject of it. Only chunks that
        it lacks are carried over; nothing is removed there."""
        only = None if subject is None else str(subject_of(subject))
        return copying.copy(self._ledger, other._ledger, only, dry_run=dry_run, progress=progress)
