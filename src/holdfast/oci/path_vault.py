"""Checkpoints in a directory, local or shared (spec/container-v1.md, "Layout of a base path")."""

from __future__ import annotations

import builtins
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
import uuid_utils
from blake3 import blake3

from holdfast.model import moment
from holdfast.model.errors import Corrupt, Denied, HoldfastError, NotFound, from_os_error
from holdfast.model.subject import Subject
from holdfast.oci import constants
from holdfast.oci.memory import increment
from holdfast.oci.memory.runs import PARENT
from holdfast.oci.private import private_folder
from holdfast.oci.vault import MEMORY, Saved, part_files, sweep

if TYPE_CHECKING:
    from holdfast.store.keys import Keyring

_STAGING = ".staging"
_LEDGER = "@ledger.json"
_SYNCING = 16
_MAX_MANIFEST = 16 * 1024 * 1024
LINE = 8
_LONGEST = 1000  # no line is so long; a circle would be longer
_WORTH = 0.7  # an increment that is nearly as large as the whole is not worth the dependence


class PartLine(msgspec.Struct, frozen=True, kw_only=True):
    """One part in a manifest."""

    name: str
    size: int
    blake3: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`manifest.json`."""

    format: int
    id: str
    subject: str
    time: str
    reason: str
    parts: tuple[PartLine, ...]
    parent: str | None = None  # the checkpoint whose pages this one's memory leaves out


class PathVault:
    """A base path. The keyring is asked for only when something is signed or verified."""

    def __init__(self, base: Path, keyring: Callable[[], Keyring], line: int = LINE) -> None:
        self.base = base
        self._keyring = keyring
        self._line = line  # at most so many checkpoints depend on each other

    def stage(self) -> Path:
        return self.base / _STAGING / str(uuid_utils.uuid7())

    def save(self, subject: Subject, staged: Path, reason: str) -> Saved:
        time = moment.now()
        try:
            parent = self._reduce(subject, staged / MEMORY)
            parts = _sealed_parts(staged)
            manifest = Manifest(
                format=constants.FORMAT if parent is None else constants.INCREMENT_FORMAT,
                id=staged.name,
                subject=str(subject),
                time=moment.to_text(time),
                reason=reason,
                parts=tuple(parts),
                parent=parent,
            )
            data = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
            signer, mac = self._keyring().sign(data)
            _write(staged / "manifest.sig", f"{signer.hex()} {mac.hex()}\n".encode())
            _write(staged / "manifest.json", data)
            for folder in (staged / MEMORY, staged / "files", staged):
                _sync(folder)
            place = self._place(subject) / f"@{staged.name}"
            private_folder(place.parent)
            staged.rename(place)
            for folder in (place.parent, *place.parent.parents):
                _sync(folder)
                if folder == self.base:
                    break
        except OSError as error:
            raise from_os_error(error, "keeping a container's checkpoint") from error
        size = sum(part.size for part in parts)
        return Saved(staged.name, subject, time, size, reason, written_bytes=size)

    def _reduce(self, subject: Subject, memory: Path) -> str | None:
        """Leave out what the newest checkpoint has already, where that is much; gives its id. A
        line of increments ends after a while: everything in it is needed to restore the last."""
        for base in self.list(subject)[:1]:
            try:
                place = self._verified(base)
                line = self._ancestors(place)
                if len(line) + 1 >= self._line:
                    return None
                differences = increment.compare(place / MEMORY, memory)
            except HoldfastError:  # a base that is not whole is none
                return None
            whole = increment.whole_bytes(differences)
            if increment.kept_bytes(differences) >= whole * _WORTH:
                return None
            increment.carry_out(memory, differences)
            (memory / PARENT).symlink_to(_link(base.id))
            return base.id
        return None

    def _ancestors(self, place: Path) -> builtins.list[str]:
        """The ids that a checkpoint needs besides itself, as its manifest says."""
        found: list[str] = []
        while len(found) < _LONGEST and (parent := _parent(place)) is not None:
            found.append(parent)
            place = place.with_name(f"@{parent}")
        return found

    def list(self, subject: Subject) -> builtins.list[Saved]:
        place = self._place(subject)
        if not place.is_dir():
            return []
        ids = [path.parent.name[1:] for path in place.glob("@*/manifest.json")]
        return [self._look(subject, each) for each in sorted(filter(_is_id, ids), reverse=True)]

    def subjects(self) -> builtins.list[Subject]:
        found = {path.parent.parent for path in self.base.glob("*/**/@*/manifest.json")}
        return sorted(Subject("container", str(each.relative_to(self.base))) for each in found)

    def _look(self, subject: Subject, checkpoint: str) -> Saved:
        """What can be said about a checkpoint before it is verified: its id and its files."""
        place = self._place(subject) / f"@{checkpoint}"
        millis = UUID(checkpoint).int >> 80
        size = sum(path.stat().st_size for _, path in part_files(place))
        return Saved(checkpoint, subject, moment.from_micros(millis * 1000), size, "")

    def check(self, saved: Saved) -> None:
        self._verified(saved)

    def fetch(self, saved: Saved, scratch: Path) -> Path:
        return self._verified(saved)  # used where it is: nothing changes it

    def _verified(self, saved: Saved) -> Path:
        """A checkpoint and all that it needs, every byte read."""
        place = self._place(saved.subject) / f"@{saved.id}"
        manifest = self._verified_one(place, saved)
        for _ in range(_LONGEST):
            if manifest.parent is None:
                return place
            needed = Saved(manifest.parent, saved.subject, saved.time, 0, "")
            manifest = self._verified_one(place.with_name(f"@{needed.id}"), needed)
        raise Corrupt(f"checkpoint {saved.id} needs itself, or too many others")

    def _verified_one(self, place: Path, saved: Saved) -> Manifest:
        manifest = self._verified_manifest(place, saved)
        link = place / MEMORY / PARENT
        if manifest.parent is None:
            sound = not os.path.lexists(link)
        else:
            sound = link.is_symlink() and os.readlink(link) == _link(manifest.parent)
        if not sound:
            raise Corrupt(
                f"checkpoint {saved.id} names another parent than it has", where=str(link)
            )
        listed = {part.name: part for part in manifest.parts}
        there = dict(part_files(place))
        if missing := sorted(listed.keys() - there.keys()):
            raise Corrupt(f"checkpoint {saved.id} has lost {missing[0]}", where=str(place))
        if strange := sorted(there.keys() - listed.keys()):
            raise Corrupt(f"checkpoint {saved.id} has {strange[0]}, which nobody signed")
        for name, part in listed.items():
            size = there[name].stat().st_size
            if size != part.size:
                raise Corrupt(
                    f"{name} of checkpoint {saved.id} has {size} bytes, not {part.size}",
                    where=str(there[name]),
                )
        for name, part in listed.items():
            if _hash(there[name]) != part.blake3:
                raise Corrupt(
                    f"{name} of checkpoint {saved.id} is not what was written",
                    where=str(there[name]),
                )
        return manifest

    def _verified_manifest(self, place: Path, saved: Saved) -> Manifest:
        try:
            with (place / "manifest.json").open("rb") as file:
                data = file.read(_MAX_MANIFEST)
            signer, _, mac = (place / "manifest.sig").read_text("ascii").strip().partition(" ")
            key_id, code = bytes.fromhex(signer), bytes.fromhex(mac)
        except FileNotFoundError:
            raise NotFound(f"checkpoint {saved.id} is not there, or not whole") from None
        except ValueError:
            raise Corrupt(f"the signature of checkpoint {saved.id} cannot be read") from None
        keyring = self._keyring()
        if not keyring.knows(key_id):
            raise Denied(
                f"checkpoint {saved.id} is foreign: it was signed by a key that is not known here",
                hint="import that node's key with `holdfast key import` if you trust it",
            )
        if not keyring.accepts(key_id, code, data):
            raise Corrupt(f"the manifest of checkpoint {saved.id} was changed after it was signed")
        manifest = msgspec.json.decode(data, type=Manifest)
        if manifest.format not in (constants.FORMAT, constants.INCREMENT_FORMAT):
            raise Corrupt(f"checkpoint {saved.id} has the unknown format {manifest.format}")
        if manifest.subject != str(saved.subject) or manifest.id != saved.id:
            raise Denied(
                f"checkpoint {saved.id} belongs to {manifest.subject}, not to {saved.subject}",
                hint="checkpoints are not moved between containers by copying files",
            )
        return manifest

    def forget(self, saved: Saved) -> None:
        place = self._place(saved.subject) / f"@{saved.id}"
        (place / "manifest.json").unlink(missing_ok=True)  # from here on it is no checkpoint
        shutil.rmtree(place, ignore_errors=True)

    def keep(self, subject: Subject, count: int) -> None:
        """What an increment needs stays until no increment needs it."""
        found = self.list(subject)
        needed = {
            each
            for saved in found[:count]
            for each in self._ancestors(self._place(subject) / f"@{saved.id}")
        }
        for saved in found[count:]:
            if saved.id not in needed:
                self.forget(saved)

    def ledger(self, subject: Subject) -> Path:
        return self._place(subject) / _LEDGER

    def sweep(self) -> None:
        sweep(self.base / _STAGING)

    def _place(self, subject: Subject) -> Path:
        return self.base / subject.name


def _link(parent: str) -> str:
    """What the link `memory/parent` of an increment says."""
    return f"../../@{parent}/{MEMORY}"


def _parent(place: Path) -> str | None:
    """The parent that a manifest names, without verifying it: to keep too much does no harm."""
    try:
        data = (place / "manifest.json").read_bytes()
        parent = msgspec.json.decode(data, type=Manifest).parent
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None
    return parent if parent is not None and _is_id(parent) else None


def _is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _sealed_parts(staged: Path) -> list[PartLine]:
    """Several at once: the file system then commits its journal for many of them together."""
    with ThreadPoolExecutor(_SYNCING) as pool:
        return list(pool.map(lambda part: _sealed(*part), part_files(staged)))


def _sealed(name: str, path: Path) -> PartLine:
    """Hash a part and see to it that it is on the disk."""
    digest = _hash(path)
    _sync(path)
    return PartLine(name=name, size=path.stat().st_size, blake3=digest)


def _hash(path: Path) -> str:
    hasher = blake3(max_threads=blake3.AUTO)
    hasher.update_mmap(path)
    return hasher.hexdigest()


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
