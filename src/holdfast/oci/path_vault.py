"""Checkpoints in a directory, local or shared (spec/container-v1.md, "Layout of a base path")."""

from __future__ import annotations

import builtins
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import uuid_utils

from holdfast.model import moment
from holdfast.model.disk import Disk
from holdfast.model.errors import Corrupt, HoldfastError, NotFound, from_os_error
from holdfast.model.subject import Subject
from holdfast.oci import compression, places
from holdfast.oci.memory.pagemap import PARENT
from holdfast.oci.policy import LONGEST_LINE
from holdfast.oci.private import private_folder
from holdfast.oci.sealing import Manifest, Sealer, is_id, link_to, peek
from holdfast.oci.vault import LAYER, MEMORY, Saved, part_files, sweep
from holdfast.runtime.trial import clear

if TYPE_CHECKING:
    from holdfast.store.keys import Keyring

_STAGING = ".staging"
_LEDGER = "@ledger.json"
_LOCK = "@lock"
_TIDYING = "@tidying"
_ENDLESS = 1000  # no line is so long; a circle would be longer
_BELOW_TIME = 80  # bits of a UUID of version 7 below its milliseconds
_RANDOM = (1 << _BELOW_TIME) - 1
_WORTH = 0.7  # an increment that is nearly as large as the whole is not worth the dependence


class PathVault:
    """A base path. Whoever reads a checkpoint for longer does so within `reading`, because a
    checkpoint may get another form (`rewrite`) at any time."""

    def __init__(
        self,
        base: Path,
        keyring: Callable[[], Keyring],
        *,
        increments: bool = True,
        disk: Disk | None = None,
    ) -> None:
        self.base = base
        self._increments = increments
        self._disk = disk or Disk()
        self._sealer = Sealer(keyring, self._disk)

    def stage(self) -> Path:
        return self.base / _STAGING / str(uuid_utils.uuid7())

    def save(self, subject: Subject, staged: Path, reason: str) -> Saved:
        time = moment.now()
        newest = next(iter(self.list(subject)), None)
        checkpoint = staged.name if newest is None else _later(staged.name, newest.id)
        place = self.place(subject, checkpoint)
        try:
            private_folder(place.parent)
            with self.reading(subject):
                parent = self._reduce(subject, staged / MEMORY)
                manifest = self._sealer.seal(
                    staged,
                    checkpoint=checkpoint,
                    subject=subject,
                    time=moment.to_text(time),
                    reason=reason,
                    parent=parent,
                )
                staged.rename(place)
            self._sync_way(place)
        except OSError as error:
            raise from_os_error(error, "keeping a container's checkpoint") from error
        size = manifest.size_bytes
        return Saved(checkpoint, subject, time, size, reason, written_bytes=size)

    def _sync_way(self, place: Path) -> None:
        for folder in place.parents:
            self._disk.sync_directory(folder, "checkpoint's name")
            if folder == self.base:
                break
        # The first checkpoint made it, and perhaps what it is in.
        self._disk.sync_way(self.base, "checkpoint's place")

    def _reduce(self, subject: Subject, memory: Path) -> str | None:
        """Leave out what the newest checkpoint has already, where that is much; gives its id."""
        from holdfast.oci.memory import increment

        for base in self.list(subject)[:1] if self._increments else ():
            try:
                place = self._verified(base)[0]
                if len(self.line(subject, base.id)) >= LONGEST_LINE:
                    return None
                differences = increment.compare(place / MEMORY, memory)
            except HoldfastError:  # a base that is not whole is none
                return None
            whole = increment.whole_bytes(differences)
            if increment.kept_bytes(differences) >= whole * _WORTH:
                return None
            increment.carry_out(memory, differences)
            (memory / PARENT).symlink_to(link_to(base.id))
            return base.id
        return None

    def line(self, subject: Subject, checkpoint: str) -> builtins.list[str]:
        """A checkpoint and those that it needs, as their manifests say; nothing is verified."""
        found = [checkpoint]
        while len(found) < _ENDLESS:
            manifest = peek(self.place(subject, found[-1]))
            if manifest is None or manifest.parent is None:
                break
            found.append(manifest.parent)
        return found

    def is_compressed(self, subject: Subject, checkpoint: str) -> bool:
        manifest = peek(self.place(subject, checkpoint))
        return manifest is not None and manifest.compressed

    def list(self, subject: Subject) -> builtins.list[Saved]:
        place = self.base / subject.name
        try:
            if not place.is_dir():
                return []
            ids = [path.parent.name[1:] for path in place.glob("@*/manifest.json")]
            return [self._look(subject, each) for each in sorted(filter(is_id, ids), reverse=True)]
        except OSError as error:
            raise from_os_error(error, "looking for a container's checkpoints") from error

    def subjects(self) -> builtins.list[Subject]:
        found = {path.parent.parent for path in self.base.glob("*/**/@*/manifest.json")}
        return sorted(Subject("container", str(each.relative_to(self.base))) for each in found)

    def _look(self, subject: Subject, checkpoint: str) -> Saved:
        """What can be said about a checkpoint before it is verified: its id and its files."""
        millis = UUID(checkpoint).int >> _BELOW_TIME
        parts = part_files(self.place(subject, checkpoint))
        size = sum(path.stat().st_size for _, path in parts)
        return Saved(checkpoint, subject, moment.from_micros(millis * 1000), size, "")

    def reading(self, subject: Subject) -> AbstractContextManager[None]:
        return places.shared(self._lock(subject))

    def tidying(self, subject: Subject, *, wait: bool) -> AbstractContextManager[bool]:
        """Be the only one who rewrites checkpoints of a container; gives whether that is so."""
        return places.alone(self.base / subject.name / _TIDYING, wait=wait)

    def check(self, saved: Saved) -> None:
        with self.reading(saved.subject):
            self._verified(saved)

    def fetch(self, saved: Saved, scratch: Path) -> Path:
        place, line = self._verified(saved)
        if not any(manifest.compressed for manifest in line):
            return place  # used where it is
        folder = scratch / saved.id
        try:
            self._lay_out(place, folder, line[0], whole=True, raw=True)
        except OSError as error:
            raise from_os_error(error, "expanding a container's checkpoint") from error
        return folder

    def _verified(self, saved: Saved) -> tuple[Path, builtins.list[Manifest]]:
        """Where a checkpoint is, and the manifests of it and all that it needs, every byte read."""
        line: list[Manifest] = []
        needed: str | None = saved.id
        while needed is not None and len(line) < _ENDLESS:
            place = self.place(saved.subject, needed)
            line.append(self._sealer.verify(place, needed, saved.subject))
            needed = line[-1].parent
        if needed is not None:
            raise Corrupt(f"checkpoint {saved.id} needs itself, or too many others")
        return self.place(saved.subject, saved.id), line

    def rewrite(self, saved: Saved, *, whole: bool, compress: bool) -> bool:
        """Give a checkpoint another form, in which it is as good as before: without those that it
        leaned on, or compressed; gives whether anything of it is compressed then. The old form is
        there until the new one takes its place, at once. Raises Unsupported where that cannot be
        done, and as `fetch` does."""
        staged = self.base / _STAGING / f"rewrite-{saved.id}"
        try:
            clear(staged)  # of somebody who was killed
            with self.reading(saved.subject):
                place, line = self._verified(saved)
                self._lay_out(place, staged, line[0], whole=whole, raw=False)
            before = line[0]
            smaller = compress and _compress(staged)
            if not smaller and not (whole and before.parent):
                return before.compressed  # nothing would be gained
            sealed = self._sealer.seal(
                staged,
                checkpoint=saved.id,
                subject=saved.subject,
                time=before.time,
                reason=before.reason,
                parent=None if whole else before.parent,
                known=[part for part in before.parts if _same(place, staged, part.name)],
            )
            with places.alone(self._lock(saved.subject)):
                if not (place / "manifest.json").exists():
                    raise NotFound(f"checkpoint {saved.id} was removed meanwhile")
                places.exchange(staged, place)
            self._disk.sync_directory(place.parent, "rewritten name")
            return sealed.compressed
        except OSError as error:
            raise from_os_error(error, "rewriting a container's checkpoint") from error
        finally:
            clear(staged)

    def _lay_out(
        self, place: Path, out: Path, manifest: Manifest, *, whole: bool, raw: bool
    ) -> None:
        """Have the parts of a checkpoint in another folder; what stays as it is is shared."""
        from holdfast.oci.memory.whole import bring, make_whole

        for folder in (out, out / MEMORY, out / "files"):
            private_folder(folder)
        whole = whole and (raw or manifest.parent is not None)
        if whole:
            make_whole(place / MEMORY, out / MEMORY)
        for name, path in part_files(place):
            if not (whole and name.startswith(f"{MEMORY}/")):
                bring(path, out / (name.removesuffix(compression.ZSTD) if raw else name))
        if manifest.parent is not None and not whole:
            (out / MEMORY / PARENT).symlink_to(link_to(manifest.parent))

    def forget(self, saved: Saved) -> None:
        place = self.place(saved.subject, saved.id)
        if not place.exists():
            return
        with places.alone(self._lock(saved.subject)):
            (place / "manifest.json").unlink(missing_ok=True)  # from here on it is no checkpoint
            shutil.rmtree(place, ignore_errors=True)

    def keep(self, subject: Subject, count: int) -> None:
        """What an increment needs stays until no increment needs it."""
        found = self.list(subject)
        needed = {each for saved in found[:count] for each in self.line(subject, saved.id)}
        for saved in found[count:]:
            if saved.id not in needed:
                self.forget(saved)

    def ledger(self, subject: Subject) -> Path:
        return self.base / subject.name / _LEDGER

    def sweep(self) -> None:
        sweep(self.base / _STAGING)

    def place(self, subject: Subject, checkpoint: str) -> Path:
        return self.base / subject.name / f"@{checkpoint}"

    def _lock(self, subject: Subject) -> Path:
        return self.base / subject.name / _LOCK


def _later(checkpoint: str, newest: str) -> str:
    """The id of a new checkpoint: its own, or one of the millisecond after the newest.

    The greatest id is the newest checkpoint. Clocks of nodes that share a folder differ, so an id
    made from the clock alone could be smaller than that of an older checkpoint.
    """
    if checkpoint > newest:
        return checkpoint
    milliseconds = (UUID(newest).int >> _BELOW_TIME) + 1
    if milliseconds >> 48:
        raise Corrupt(f"no checkpoint can follow {newest}", hint="remove it: its id is not real")
    return str(UUID(int=milliseconds << _BELOW_TIME | UUID(checkpoint).int & _RANDOM))


def _compress(folder: Path) -> bool:
    """Compress what is large in a checkpoint that rests; whether anything became smaller."""
    large = [
        path
        for name, path in part_files(folder)
        if name == LAYER or (path.name.startswith("pages-") and path.suffix == ".img")
    ]
    return sum(compression.compress(path) for path in large) > 0  # each of them is tried


def _same(one: Path, other: Path, name: str) -> bool:
    """Whether two folders share a file."""
    return (other / name).exists() and (other / name).samefile(one / name)
