"""A store in a local directory (spec/store-v1.md, section 1)."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterable, Set
from contextlib import suppress
from pathlib import Path

from holdfast.model import moment
from holdfast.model.errors import (
    BadInput,
    Corrupt,
    Denied,
    NotFound,
    StorageFull,
    Unsupported,
    from_os_error,
)
from holdfast.store.backends import beats, holds, marker, mounts, reserve
from holdfast.store.backends.contract import Hold, Pulse, Tail, VolumeInfo, Volumes
from holdfast.store.backends.disk import Disk
from holdfast.store.backends.files import open_file, write_all
from holdfast.store.backends.packdraft import PackDraft
from holdfast.store.backends.reserve import Reserve
from holdfast.store.backends.segments import PATIENCE, LocalLog
from holdfast.store.backends.slotfiles import FOLDER, SlotFiles
from holdfast.store.log.frames import Damage, Frame, Signed

_FOLDERS = ("log", "packs", "holds", "leases", "tmp")
_PACK = re.compile(r"([0-9a-f]{32})\.pack")
_TMP = re.compile(r"([0-9a-f]{16})-[0-9a-f]{8}")
_BEAT = re.compile(r"\.?[0-9a-f]{32}")
_OPEN_FILES = 64
_FAR = 1 << 62  # no file is that long, and the system's own numbers end soon after


class LocalPack(PackDraft):
    """A pack being written in `tmp`."""

    def __init__(self, backend: LocalBackend, name: bytes) -> None:
        super().__init__(backend.root / "tmp" / f"{name[:8].hex()}-{secrets.token_hex(4)}", 0o644)
        self._backend = backend
        self._final = backend.root / "packs" / f"{name.hex()}.pack"

    def publish(self) -> None:
        try:
            disk = self._backend.disk
            disk.sync_file(self._fd, "pack data")
            self._path.rename(self._final)
            disk.sync_directory(self._final.parent, "pack name")
        except OSError as error:
            raise from_os_error(error, "writing a pack") from error
        self._close()


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
        disk: Disk | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """Open the store there, or make it; `patience` is for whoever keeps the log locked."""
        self.root = root
        self.url = str(root)
        self.disk = disk or Disk()
        self._lock = threading.RLock()
        self._files: OrderedDict[bytes, int] = OrderedDict()
        self._paths: dict[bytes, Path] = {}
        self._pid = os.getpid()
        if not self._exists():
            if not create:
                raise NotFound(
                    f"there is no store at {root}", hint="check HOLDFAST_STORE or --store"
                )
            self._create()
        self._reserve = Reserve(root)
        self.store_id = self._read_marker()
        self._make_missing_folders()
        self._slots = SlotFiles(root, self.disk)
        self._log = LocalLog(root / "log", root / "tmp", self.disk, patience)
        self._holds = holds.Holds(root / "holds")

    def _exists(self) -> bool:
        with _Saying("opening the store"):
            return (self.root / marker.NAME).is_file()

    # -- the log

    def entries(self, after: int) -> Tail:
        with self._lock, _Saying("reading the log"):
            return self._log.entries(after)

    def audit(self) -> list[Damage]:
        with self._lock, _Saying("reading the log"):
            return self._log.audit()

    def append(self, signed: Signed) -> Frame:
        with self._lock, _Saying("writing the log"):
            if not signed.frees:
                self._reserve.keep()
            try:
                return self._log.append(signed)
            except StorageFull:
                if signed.frees and self._reserve.release():
                    return self._log.append(signed)
                raise

    def seal(self) -> list[bytes]:
        with self._lock, _Saying("writing the log"):
            return self._log.seal()

    def settle(self) -> None:
        with self._lock, _Saying("writing the log"):
            self._log.settle()

    def compact(self, upto: Signed, frames: Iterable[Frame]) -> int:
        with self._lock, _Saying("compacting the log"):
            return self._log.compact(upto, frames)

    def trim(self, before: int, needed: Set[bytes]) -> int:
        oldest = self.oldest_hold()
        if oldest is not None and oldest < before:
            return 0
        with self._lock, _Saying("trimming the log"):
            freed = self._log.trim(before, needed)
            if freed:
                self._reserve.keep()
            return freed

    # -- volumes

    def volumes(self) -> list[VolumeInfo]:
        with self._lock, _Saying("listing the store"):
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
                        found.append(VolumeInfo(file.name, file.path.stat().st_size, False))
            return found

    def create_pack(self, name: bytes) -> LocalPack:
        return LocalPack(self, name)

    def read(self, volume: bytes, offset: int, size: int) -> bytes:
        if offset + size >= _FAR:
            raise Corrupt(f"nothing is at byte {offset}", where=self._describe(volume))
        fd = self._open(volume)
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
        with _Saying("looking at a pack"):
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
        with self._lock:
            fd = self._files.pop(volume, None)
            if fd is not None:
                os.close(fd)
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
        self._sweep_tmp(alive)
        self._sweep_leases()
        return alive

    # -- leases

    def beat(self, name: bytes) -> beats.LocalBeat:
        if refusal := mounts.lease_refusal(mounts.mount_of(self.root)):
            raise Unsupported(f"no leases in {self.root}: {refusal[0]}", hint=refusal[1])
        return beats.LocalBeat(self.root / "leases", name)

    def end_beat(self, name: bytes) -> None:
        with _Saying("taking a lease"):
            (self.root / "leases" / name.hex()).unlink(missing_ok=True)

    def pulse(self, name: bytes) -> Pulse | None:
        with _Saying("looking at a lease"):
            return beats.pulse(self.root / "leases" / name.hex())

    # -- key slots

    def slots(self) -> dict[str, bytes]:
        return self._slots.read()

    def put_slot(self, name: str, data: bytes) -> None:
        self._slots.put(name, data)

    def remove_slot(self, name: str) -> None:
        self._slots.remove(name)

    def free_bytes(self) -> int | None:
        with _Saying("looking at the disk"):
            return shutil.disk_usage(self.root).free

    def reopened(self) -> LocalBackend:
        return LocalBackend(self.root, create=False, disk=self.disk)

    def close(self) -> None:
        with self._lock:
            for fd in self._files.values():
                os.close(fd)
            self._files.clear()
        self._holds.close()

    # -- inside

    def _living(self) -> list[tuple[int, bytes]]:
        with _Saying("looking at who uses the store"):
            return holds.living(self.root / "holds")

    def _sweep_tmp(self, alive: set[bytes]) -> None:
        """Remove what dead writers left half written."""
        with _Saying("sweeping the store"):
            for path in (self.root / "tmp").iterdir():
                match = _TMP.fullmatch(path.name)
                left = match and bytes.fromhex(match[1]) not in alive
                if left and path.is_file() and _is_old(path):
                    path.unlink(missing_ok=True)

    def _sweep_leases(self) -> None:
        with _Saying("sweeping the store"):
            for path in (self.root / "leases").iterdir():
                if _BEAT.fullmatch(path.name) and path.is_file() and _is_old(path):
                    beats.pulse(path)

    def _open(self, volume: bytes) -> int:
        """A descriptor of the volume that the caller closes; the file itself is kept open, too."""
        with self._lock:
            if self._pid != os.getpid():
                # The descriptors are the parent's business; ours are opened anew.
                self._pid = os.getpid()
                self._files = OrderedDict()
            fd = self._files.get(volume)
            if fd is None:
                path = self.path(volume)
                if path is None:
                    raise NotFound(f"volume {volume.hex()} is not in this store")
                try:
                    fd = open_file(path)
                except OSError as error:
                    raise from_os_error(error, "opening a volume") from error
                self._files[volume] = fd
                if len(self._files) > _OPEN_FILES:
                    _, oldest = self._files.popitem(last=False)
                    os.close(oldest)
            self._files.move_to_end(volume)
            return os.dup(fd)

    def _segment_path(self, volume: bytes) -> Path | None:
        path = self._paths.get(volume)
        if path is None or not path.exists():
            self._paths = {file.name: file.path for file in self._log.files()}
            path = self._paths.get(volume)
        return path

    def _describe(self, volume: bytes) -> str:
        path = self.path(volume)
        return path.name if path else volume.hex()

    def _make_missing_folders(self) -> None:
        """Backups and version control forget empty directories."""
        with _Saying("opening the store"):
            missing = [name for name in _FOLDERS if not (self.root / name).is_dir()]
            try:
                for name in missing:
                    (self.root / name).mkdir(exist_ok=True)
            except PermissionError:
                return  # whoever may only read can do without
            except OSError as error:
                if error.errno != errno.EROFS:
                    raise
                return
            if missing:
                self.disk.sync_directory(self.root, "layout")

    def _create(self) -> None:
        try:
            self._refuse_foreign_folder()
            self.root.mkdir(parents=True, exist_ok=True)
            self._make_missing_folders()
            self.disk.sync_way(self.root)
            self._write_marker()
        except OSError as error:
            raise from_os_error(error, f"making a store at {self.root}") from error

    def _refuse_foreign_folder(self) -> None:
        if self.root.exists() and not self.root.is_dir():
            raise BadInput(
                f"{self.root} is a file, not a store's directory",
                hint="give a directory; `holdfast import` reads exported files",
            )
        if self.root.is_dir():
            # The marker is there when another process makes the same store at this moment.
            expected = {*_FOLDERS, FOLDER, marker.NAME, reserve.NAME}
            strange = sorted(p.name for p in self.root.iterdir() if p.name not in expected)
            if strange:
                raise Denied(
                    f"{self.root} is not empty and not a store (it has {strange[0]!r})",
                    hint="give an empty or a new directory",
                )

    def _write_marker(self) -> None:
        draft = self.root / "tmp" / f"{secrets.token_hex(8)}-{secrets.token_hex(4)}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            write_all(fd, marker.encode_new(), 0)
            self.disk.sync_file(fd, "marker data")
        finally:
            os.close(fd)
        with suppress(FileExistsError):  # made by another process at the same moment: as good
            os.link(draft, self.root / marker.NAME)
        self.disk.sync_directory(self.root, "marker name")
        draft.unlink()

    def _read_marker(self) -> str:
        path = self.root / marker.NAME
        try:
            with open(open_file(path), "rb") as file:
                data = file.read()
            if path.stat().st_nlink > 1:
                # Its maker has not finished, or never will: see to it that the name lasts.
                self.disk.sync_directory(self.root, "marker name")
        except OSError as error:
            raise from_os_error(error, "opening the store") from error
        return marker.decode(data, str(self.root))


class _Saying:
    """Turn operating-system errors into Holdfast's, saying what was being done."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise from_os_error(error, self._doing) from error


def _is_old(path: Path) -> bool:
    """Old enough not to be a file whose owner is just about to take its hold."""
    try:
        return moment.now().timestamp() - path.stat().st_mtime > 60
    except FileNotFoundError:
        return False
