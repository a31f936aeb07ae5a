"""A store in a local directory (spec/store-v1.md, section 1)."""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from pathlib import Path

from holdfast.model.disk import Disk
from holdfast.model.errors import (
    Corrupt,
    Denied,
    NotFound,
    StorageFull,
    Unsupported,
    from_os_error,
)
from holdfast.model.files import GROUP, PRIVATE, access_of
from holdfast.store.backends import marker
from holdfast.store.backends.contract import Buffer, Hold, Pulse, Tail, VolumeInfo, Volumes
from holdfast.store.backends.files import Saying
from holdfast.store.backends.local import beats, directory, holds, mounts, sweeping
from holdfast.store.backends.local.direct import Direct
from holdfast.store.backends.local.log import LocalLog
from holdfast.store.backends.local.loglock import PATIENCE
from holdfast.store.backends.local.openfiles import OpenFiles
from holdfast.store.backends.local.reserve import Reserve
from holdfast.store.backends.local.slotfiles import SlotFiles
from holdfast.store.backends.packdraft import PackDraft
from holdfast.store.log.frames import Damage, Frame, Signed

log = logging.getLogger("holdfast.store")

_warned: set[Path] = set()  # stores of which was said what they are on, or that are safe
_PACK = re.compile(r"([0-9a-f]{32})\.pack")
_FAR = 1 << 62  # no file is that long, and the system's own numbers end soon after


class LocalPack(PackDraft):
    """A pack being written in `tmp`."""

    def __init__(self, backend: LocalBackend, name: bytes) -> None:
        super().__init__(sweeping.draft_path(backend.root / "tmp", name[:8]), backend.access)
        self._backend = backend
        self._final = backend.root / "packs" / f"{name.hex()}.pack"
        self._direct = Direct(self._path)

    def lay(self, offset: int, pieces: Sequence[Buffer]) -> None:
        try:
            done = self._direct.write(offset, pieces)
        except OSError as error:
            raise from_os_error(error, "writing a pack") from error
        for piece in pieces:
            left = memoryview(piece)[done:]
            self.write_at(offset + len(piece) - len(left), left)
            offset, done = offset + len(piece), max(0, done - len(piece))

    def publish(self) -> None:
        try:
            self._direct.close()
            disk = self._backend.disk
            disk.sync_file(self._fd, "pack data")
            self._path.rename(self._final)
            disk.sync_directory(self._final.parent, "pack name")
        except OSError as error:
            raise from_os_error(error, "writing a pack") from error
        self._close()

    def discard(self) -> None:
        self._direct.close()
        super().discard()


class LocalBackend:
    """A directory as a store's place."""

    pack_limit = 128 * 1024 * 1024
    transfers = 2
    traffic = None

    def __init__(
        self,
        root: Path,
        *,
        create: bool = True,
        shared: bool = False,
        disk: Disk | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """Open the store there, or make it: for its user alone, or `shared` with its group.
        `patience` is for whoever keeps the log locked."""
        self.root = root
        self.url = str(root)
        self.disk = disk or Disk()
        self._lock = threading.RLock()
        self._open = OpenFiles(self._find)
        self._paths: dict[bytes, Path] = {}
        if not directory.exists(root):
            if not create:
                raise marker.missing(root)
            directory.create(root, self.disk, GROUP if shared else PRIVATE)
        elif shared:
            directory.check_shared(root)
        self.access = access_of(root)
        self._looked = False  # whether it was found out what the directory is on
        self._reserve = Reserve(root, self.access)
        self.store_id = directory.store_id(root, self.disk)
        directory.make_missing_folders(root, self.disk)
        self._slots = SlotFiles(root, self.disk, self.access)
        self._log = LocalLog(root / "log", root / "tmp", self.disk, patience, self.access)
        self._holds = holds.Holds(root / "holds", self.access)

    # -- the log

    def entries(self, after: int) -> Tail:
        with self._lock, Saying("reading the log"):
            return self._log.entries(after)

    def audit(self) -> list[Damage]:
        with self._lock, Saying("reading the log"):
            return self._log.audit()

    def append(self, signed: Signed) -> Frame:
        if not self._looked:
            self._warn_of_place()
        with self._lock, Saying("writing the log"):
            if not signed.frees:
                self._reserve.keep()
            try:
                return self._log.append(signed)
            except StorageFull:
                if signed.frees and self._reserve.release():
                    return self._log.append(signed)
                raise

    def seal(self) -> list[bytes]:
        with self._lock, Saying("writing the log"):
            return self._log.seal()

    def settle(self) -> None:
        with self._lock, Saying("writing the log"):
            self._log.settle()

    def compact(self, upto: Signed, frames: Iterable[Frame]) -> int:
        with self._lock, Saying("compacting the log"):
            return self._log.compact(upto, frames)

    def trim(self, before: int, needed: Set[bytes]) -> int:
        oldest = self.oldest_hold()
        if oldest is not None and oldest < before:
            return 0
        with self._lock, Saying("trimming the log"):
            freed = self._log.trim(before, needed)
            if freed:
                self._reserve.keep()
            return freed

    # -- volumes

    def volumes(self) -> list[VolumeInfo]:
        with self._lock, Saying("listing the store"):
            found = []
            with os.scandir(self.root / "packs") as entries:
                for entry in entries:
                    if match := _PACK.fullmatch(entry.name):
                        name = bytes.fromhex(match[1])
                        # A collector may delete a file between listing and looking.
                        with suppress(FileNotFoundError):
                            # Whoever reads what is no file is told so.
                            size = entry.stat().st_size if entry.is_file() else 0
                            found.append(VolumeInfo(name, size, True))
            for file in self._log.files():
                if not file.is_snapshot:
                    self._paths[file.name] = file.path
                    with suppress(FileNotFoundError):
                        found.append(VolumeInfo(file.name, self._log.size(file), False))
            return found

    def create_pack(self, name: bytes) -> LocalPack:
        return LocalPack(self, name)

    def read(self, volume: bytes, offset: int, size: int) -> bytes:
        if offset + size >= _FAR:
            raise Corrupt(f"nothing is at byte {offset}", where=self._describe(volume))
        fd = self._open.borrow(volume)
        try:
            data = os.pread(fd, size, offset)
            while len(data) < size:
                more = os.pread(fd, size - len(data), offset + len(data))
                if not more:
                    raise Corrupt(
                        f"the volume ends before byte {offset + size}", where=self._describe(volume)
                    )
                data += more
        except OSError as error:
            raise from_os_error(error, "reading the store") from error
        finally:
            os.close(fd)
        return data

    def originals(self) -> Volumes:
        return self

    def pack_size(self, volume: bytes) -> int | None:
        with Saying("looking at a pack"):
            try:
                return (self.root / "packs" / f"{volume.hex()}.pack").stat().st_size
            except FileNotFoundError:
                return None

    def distrust(self, volume: bytes, offset: int) -> bool:
        return False  # there is no other copy

    def path(self, volume: bytes) -> Path | None:
        pack = self.root / "packs" / f"{volume.hex()}.pack"
        if pack.exists():
            return pack
        return self._segment_path(volume)

    def delete(self, volume: bytes) -> int:
        path = self.root / "packs" / f"{volume.hex()}.pack"
        self._open.forget(volume)
        try:
            if not path.is_file():
                return 0  # gone, or nothing of ours
            size = path.stat().st_size
            path.unlink()
            self._reserve.keep()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise from_os_error(error, "deleting a pack") from error
        return size

    # -- holds

    def hold(self, seq: int) -> Hold:
        try:
            return self._holds.take(seq)
        except (Denied, NotFound, StorageFull) as error:
            return holds.ReaderHold(error)

    def oldest_hold(self) -> int | None:
        return min((seq for seq, _ in self._living()), default=None)

    def active_nonces(self) -> set[bytes]:
        alive = {nonce for _, nonce in self._living()}
        with Saying("sweeping the store"):
            sweeping.sweep_tmp(self.root / "tmp", alive)
            sweeping.sweep_leases(self.root / "leases")
        return alive

    # -- leases

    def beat(self, name: bytes) -> beats.LocalBeat:
        if refusal := mounts.lease_refusal(mounts.mount_of(self.root)):
            raise Unsupported(f"no leases in {self.root}: {refusal[0]}", hint=refusal[1])
        return beats.LocalBeat(self.root / "leases", name, self.access)

    def end_beat(self, name: bytes) -> None:
        with Saying("taking a lease"):
            (self.root / "leases" / name.hex()).unlink(missing_ok=True)

    def pulse(self, name: bytes) -> Pulse | None:
        with Saying("looking at a lease"):
            return beats.pulse(self.root / "leases" / name.hex())

    # -- key slots

    def slots(self) -> dict[str, bytes]:
        return self._slots.read()

    def put_slot(self, name: str, data: bytes) -> None:
        self._slots.put(name, data)

    def remove_slot(self, name: str) -> None:
        self._slots.remove(name)

    def free_bytes(self) -> int | None:
        with Saying("looking at the disk"):
            return shutil.disk_usage(self.root).free

    def reopened(self) -> LocalBackend:
        return LocalBackend(self.root, create=False, disk=self.disk)

    def close(self) -> None:
        self._open.close()
        with self._lock:
            self._log.close()
        self._holds.close()

    # -- inside

    def _warn_of_place(self) -> None:
        """Say, once a process, that only one machine may write where what another one has appended
        is seen late: the next entry would be written over it."""
        self._looked = True
        if self.root in _warned:
            return
        _warned.add(self.root)
        if refusal := mounts.lease_refusal(mounts.mount_of(self.root)):
            log.warning(
                "only one machine may write to the store at %s: %s, so commits of two machines"
                " may be lost; %s",
                self.root,
                *refusal,
            )

    def _living(self) -> list[tuple[int, bytes]]:
        with Saying("looking at who uses the store"):
            return holds.living(self.root / "holds")

    def _find(self, volume: bytes) -> Path:
        with self._lock:
            path = self.path(volume)
        if path is None:
            raise NotFound(f"volume {volume.hex()} is not in this store")
        return path

    def _segment_path(self, volume: bytes) -> Path | None:
        path = self._paths.get(volume)
        if path is None or not path.exists():
            self._paths = {file.name: file.path for file in self._log.files()}
            path = self._paths.get(volume)
        return path

    def _describe(self, volume: bytes) -> str:
        path = self.path(volume)
        return path.name if path else volume.hex()
