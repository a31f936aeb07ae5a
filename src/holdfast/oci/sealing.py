"""A checkpoint in a folder: its parts, and a signed manifest that says what each of them is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.model.disk import Disk
from holdfast.model.errors import Corrupt, Denied, NotFound
from holdfast.model.subject import Subject
from holdfast.oci import constants
from holdfast.oci.compression import ZSTD
from holdfast.oci.memory.pagemap import PARENT
from holdfast.oci.vault import MEMORY, part_files

if TYPE_CHECKING:
    from holdfast.store.keys import Keyring

_SYNCING = 16
_MAX_MANIFEST = 16 * 1024 * 1024
_FORMATS = (constants.FORMAT, constants.INCREMENT_FORMAT, constants.COMPRESSED_FORMAT)


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

    @property
    def compressed(self) -> bool:
        return self.format == constants.COMPRESSED_FORMAT

    @property
    def size_bytes(self) -> int:
        return sum(part.size for part in self.parts)


class Sealer:
    """Signs folders and verifies them. The keyring is asked for only when that is done."""

    def __init__(self, keyring: Callable[[], Keyring], disk: Disk) -> None:
        self._keyring = keyring
        self._disk = disk

    def seal(
        self,
        folder: Path,
        *,
        checkpoint: str,
        subject: Subject,
        time: str,
        reason: str,
        parent: str | None,
        known: Iterable[PartLine] = (),
    ) -> Manifest:
        """Write the manifest of a folder that has its parts, and see to it that all of it is on the
        disk. What is `known` of parts is believed: to read them again would be to vouch for what
        has become of them since. Several parts are synced at once: the file system then commits its
        journal for them together."""
        lines = {line.name: line for line in known}

        def sealed(part: tuple[str, Path]) -> PartLine:
            name, path = part
            line = lines.get(name)
            if line is None:
                line = PartLine(name=name, size=path.stat().st_size, blake3=_hash(path))
            with path.open("rb") as file:
                self._disk.sync_file(file.fileno(), "part")
            return line

        with ThreadPoolExecutor(_SYNCING) as pool:
            parts = tuple(pool.map(sealed, part_files(folder)))
        manifest = Manifest(
            format=_format(parts, parent),
            id=checkpoint,
            subject=str(subject),
            time=time,
            reason=reason,
            parts=parts,
            parent=parent,
        )
        data = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        signer, mac = self._keyring().sign(data)
        line = f"{signer.hex()} {mac.hex()}\n".encode()
        self._disk.write(folder / "manifest.sig", line, "signature")
        self._disk.write(folder / "manifest.json", data, "manifest")
        for each in (folder / MEMORY, folder / "files", folder):
            self._disk.sync_directory(each, "parts' names")
        return manifest

    def verify(self, place: Path, checkpoint: str, subject: Subject) -> Manifest:
        """The manifest of a folder, when every byte in it is what was signed; raises NotFound,
        Corrupt, Denied."""
        manifest = self._signed(place, checkpoint, subject)
        link = place / MEMORY / PARENT
        if manifest.parent is None:
            sound = not os.path.lexists(link)
        else:
            sound = link.is_symlink() and os.readlink(link) == link_to(manifest.parent)
        if not sound:
            raise Corrupt(
                f"checkpoint {checkpoint} names another parent than it has", where=str(link)
            )
        listed = {part.name: part for part in manifest.parts}
        there = dict(part_files(place))
        if missing := sorted(listed.keys() - there.keys()):
            raise Corrupt(f"checkpoint {checkpoint} has lost {missing[0]}", where=str(place))
        if strange := sorted(there.keys() - listed.keys()):
            raise Corrupt(f"checkpoint {checkpoint} has {strange[0]}, which nobody signed")
        for name, part in listed.items():
            size = there[name].stat().st_size
            if size != part.size:
                raise Corrupt(
                    f"{name} of checkpoint {checkpoint} has {size} bytes, not {part.size}",
                    where=str(there[name]),
                )
        for name, part in listed.items():
            if _hash(there[name]) != part.blake3:
                raise Corrupt(
                    f"{name} of checkpoint {checkpoint} is not what was written",
                    where=str(there[name]),
                )
        return manifest

    def _signed(self, place: Path, checkpoint: str, subject: Subject) -> Manifest:
        try:
            with (place / "manifest.json").open("rb") as file:
                data = file.read(_MAX_MANIFEST)
            signer, _, mac = (place / "manifest.sig").read_text("ascii").strip().partition(" ")
            key_id, code = bytes.fromhex(signer), bytes.fromhex(mac)
        except FileNotFoundError:
            raise NotFound(f"checkpoint {checkpoint} is not there, or not whole") from None
        except ValueError:
            raise Corrupt(f"the signature of checkpoint {checkpoint} cannot be read") from None
        keyring = self._keyring()
        if not keyring.knows(key_id):
            raise Denied(
                f"checkpoint {checkpoint} is foreign: its key is not known here",
                hint="import that node's key with `holdfast key import` if you trust it",
            )
        if not keyring.accepts(key_id, code, data):
            raise Corrupt(f"the manifest of {checkpoint} was changed after it was signed")
        manifest = msgspec.json.decode(data, type=Manifest)
        if manifest.format not in _FORMATS:
            raise Corrupt(f"checkpoint {checkpoint} has the unknown format {manifest.format}")
        if manifest.subject != str(subject) or manifest.id != checkpoint:
            raise Denied(
                f"checkpoint {checkpoint} belongs to {manifest.subject}, not to {subject}",
                hint="checkpoints are not moved between containers by copying files",
            )
        return manifest


def peek(place: Path) -> Manifest | None:
    """What a manifest says, without verifying it: enough to know what must be kept."""
    try:
        found = msgspec.json.decode((place / "manifest.json").read_bytes(), type=Manifest)
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None
    sound = found.parent is None or is_id(found.parent)
    return found if sound else msgspec.structs.replace(found, parent=None)


def link_to(parent: str) -> str:
    """What the link `memory/parent` of an increment says."""
    return f"../../@{parent}/{MEMORY}"


def is_id(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _format(parts: tuple[PartLine, ...], parent: str | None) -> int:
    """The oldest that says it: whoever knows no later one can read it then."""
    if any(part.name.endswith(ZSTD) for part in parts):
        return constants.COMPRESSED_FORMAT
    return constants.FORMAT if parent is None else constants.INCREMENT_FORMAT


def _hash(path: Path) -> str:
    from blake3 import blake3

    hasher = blake3(max_threads=blake3.AUTO)
    hasher.update_mmap(path)
    return hasher.hexdigest()
