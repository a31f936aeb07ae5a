"""The log of a local directory: segment files, appended to under a lock with one sync."""

from __future__ import annotations

import fcntl
import os
import random
import re
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import Conflict, Corrupt, from_os_error
from holdfast.store.backends.contract import Behind, Tail
from holdfast.store.backends.disk import Disk, Sync
from holdfast.store.backends.files import open_file, write_all
from holdfast.store.log import frames as framing
from holdfast.store.log.entries import Upto, decode_entry
from holdfast.store.log.frames import Damage, Frame, Signed

SEGMENT_LIMIT = 64 * 1024 * 1024
PATIENCE = 30.0  # seconds; a lock is held for one write and one sync
_TICK = 50_000_000  # ns; file systems tell times apart that are further apart than this
_NOTHING = Tail([])
_FILE = re.compile(r"([0-9a-f]{16})-([0-9a-f]{32})\.(log|snap)")


@dataclass(frozen=True, slots=True, order=True)
class LogFile:
    """A segment or a snapshot, as its file name tells."""

    seq: int
    path: Path
    name: bytes
    is_snapshot: bool

    @property
    def magic(self) -> bytes:
        return framing.SNAP_MAGIC if self.is_snapshot else framing.LOG_MAGIC


@dataclass(frozen=True, slots=True)
class _Position:
    """How far the log was read: behind entry `seq`, at `offset` of the segment `path`."""

    seq: int = 0
    path: Path | None = None
    offset: int = 0


class LocalLog:
    """Reads and appends. One thread at a time may use it; the backend sees to that."""

    def __init__(self, folder: Path, tmp: Path, disk: Disk, patience: float = PATIENCE) -> None:
        self._folder = folder
        self._lock_path = folder / "lock"
        self._tmp = tmp
        self._disk = disk
        self._patience = patience
        self._position = _Position()
        self._names: tuple[int, int] = (0, 0)  # when names last changed, and when they were read
        self._newest: list[Path] = []  # where entries are added, as far as the names say
        self._sealed: set[Path] = set()  # segments in which a write of ours failed
        self._mutex = threading.Lock()

    def files(self) -> list[LogFile]:
        self._names = self._folder.stat().st_mtime_ns, time.time_ns()
        found = sorted(file for file, is_file in self._listed() if is_file)
        segments = [file for file in found if not file.is_snapshot]
        last = max((file.seq for file in segments), default=0)
        self._newest = [file.path for file in segments if file.seq == last]
        path = self._position.path
        if path is not None and self._newest == [path]:
            self._newest = [path]  # what is the same object is soon compared
        return found

    def _listed(self) -> Iterator[tuple[LogFile, bool]]:
        """All that has a name such as the log's files have, and whether it is a file."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if match := _FILE.fullmatch(entry.name):
                    seq, name = int(match[1], 16), bytes.fromhex(match[2])
                    path = self._folder / entry.name
                    yield LogFile(seq, path, name, match[3] == "snap"), entry.is_file()

    def entries(self, after: int) -> Tail:
        for _ in range(10):
            try:
                return self._entries(after)
            except FileNotFoundError:
                # A collector replaced segments by a snapshot between listing and opening.
                self._position = _Position()
                if not self._folder.is_dir():
                    raise
        raise Conflict("the log changes faster than it can be read", hint="try again")

    def append(self, signed: Signed) -> Frame:
        with self._locked():
            position = self._position
            if position.seq != signed.seq - 1:
                raise Behind
            path, offset = position.path, position.offset
            if not self._is_still() or path in self._sealed or offset >= SEGMENT_LIMIT:
                if self._grown(position):
                    raise Behind
                path, offset = self._end(signed.seq)
            assert path is not None  # what is still has been read
            name = bytes.fromhex(path.stem.partition("-")[2])
            self._write(path, offset, framing.encode_frame(signed, name))
            at = framing.body_offset(signed, offset)
            frame = Frame(
                seq=signed.seq,
                key_id=signed.key_id,
                mac=signed.mac,
                header=signed.header,
                origin=name,
                body_offset=at,
                body_size=len(signed.body),
            )
            self._position = _Position(signed.seq, path, os.stat(path).st_size)
            return frame

    def audit(self) -> list[Damage]:
        """Everything that is not a good frame; harmless remains are marked `torn`."""
        damage: list[Damage] = []
        with self._locked(reading=True):
            files = self.files()
            damage += [
                Damage(file.path.name, 0, 0, False, "this is not a file")
                for file, is_file in self._listed()
                if not is_file
            ]
            segments = [file for file in files if not file.is_snapshot]
            for file in files:
                frames, bad, end = self._read(file, 0)
                last = frames[-1].seq if frames else file.seq - 1
                # A snapshot is published whole, so nothing in it is the remains of an append.
                continued = not file.is_snapshot and any(
                    other.seq == last + 1 for other in segments if other != file
                )
                if file.is_snapshot and not bad and not _is_complete(frames):
                    damage.append(Damage(file.path.name, end, 0, False, "entries are missing"))
                # What follows the last entry of all may be damaged, or never have been finished.
                newest = not file.is_snapshot and file == segments[-1]
                for found in bad:
                    remains = found.torn and continued
                    what = found.what or (
                        "the remains of an interrupted append"
                        if remains
                        else "an entry that does not match its checksum"
                    )
                    unsettled = found.torn and newest and not remains
                    if unsettled:
                        what += f" (number {last + 1}; an interrupted append looks the same)"
                    damage.append(
                        Damage(found.file, found.offset, found.size, remains, what, unsettled)
                    )
        return damage

    def seal(self) -> list[bytes]:
        """Let the next entry begin a new segment; returns those that get no more entries."""
        with self._locked():
            position = self._position
            if self._grown(position):
                raise Behind
            segments = [file for file in self.files() if not file.is_snapshot]
            newest = max(segments, default=None)
            if newest is not None and newest.seq <= position.seq:
                self._begin_segment(position.seq + 1)
            return [file.name for file in segments if file.seq <= position.seq]

    def compact(self, upto: Signed, frames: Iterable[Frame]) -> int:
        name = secrets.token_bytes(framing.NAME_SIZE)
        final = self._folder / f"{upto.seq:016x}-{name.hex()}.snap"
        data = framing.encode_snapshot(name, upto, frames)
        self._publish(final, data, "snapshot data")
        return len(data)

    def trim(self, before: int, needed: Set[bytes]) -> int:
        """Delete what the newest snapshot covers, except the volumes in `needed`. The snapshot's
        name must have been settled: it may be the work of a collector that died.

        Whoever says what is needed has read the log up to entry `before`, and settled it then;
        of what a newer snapshot covers they know nothing.
        """
        freed = 0
        with self._locked():
            files = self.files()
            snapshot = max((f for f in files if f.is_snapshot), default=None)
            if snapshot is None or snapshot.seq > before:
                return 0
            segments = [f for f in files if not f.is_snapshot]
            for file in files:
                if file.is_snapshot:
                    covered = file != snapshot
                else:
                    later = [s.seq for s in segments if s.seq > file.seq]
                    last = min(later) - 1 if later else self._last_seq(file)
                    covered = last <= snapshot.seq and file.name not in needed
                if covered:
                    freed += file.path.stat().st_size
                    file.path.unlink()
                    self._sealed.discard(file.path)
            self._position = _Position()
        return freed

    def _is_still(self) -> bool:
        """Whether nothing was added since the last reading, by two looks instead of a listing.

        The newest segment ends where it ended, and no name came or went. A name that came within
        a clock's tick of another cannot be told by the time; then the answer is no.
        """
        position = self._position
        changed, read = self._names
        if position.path is None or [position.path] != self._newest or read - changed < _TICK:
            return False
        return (
            os.stat(self._folder).st_mtime_ns == changed
            and os.stat(position.path).st_size == position.offset
        )

    def _entries(self, after: int) -> Tail:
        position = self._position
        if position.seq == after and self._is_still():
            return _NOTHING
        files = self.files()
        known = position.path is not None and any(f.path == position.path for f in files)
        if position.seq == after and (known or position.path is None) and not _was_cut(position):
            return self._follow(files, position)
        return self._from_start(files, reset=after > 0)

    def _follow(self, files: list[LogFile], position: _Position) -> Tail:
        """Read on from where the last reading ended."""
        if position.path is None and any(f.is_snapshot for f in files):
            return self._from_start(files, reset=True)
        frames: list[Frame] = []
        damage: list[Damage] = []
        seq, path, offset = position.seq, position.path, position.offset
        for file in files:
            if file.is_snapshot or not (file.path == position.path or file.seq > position.seq):
                continue
            start = offset if file.path == position.path else 0
            found, bad, end = self._read(file, start)
            frames += found
            damage += bad
            if found or path is None:
                seq = found[-1].seq if found else seq
                path, offset = file.path, end
        self._position = _Position(seq, path, offset)
        return Tail(frames, damage=damage)

    def _from_start(self, files: list[LogFile], reset: bool) -> Tail:
        snapshot = max((f for f in files if f.is_snapshot), default=None)
        frames: list[Frame] = []
        damage: list[Damage] = []
        bodies: dict[int, Frame] = {}
        base = 0
        if snapshot is not None:
            found, bad, _ = self._read(snapshot, 0)
            # With the snapshot's own entry, which says nothing but is signed. Leaving the first
            # frame out would lose another one where that entry is damaged.
            frames += found
            damage += bad
            base = snapshot.seq
        seq, path, offset, begun = base, None, 0, 0
        for file in files:
            if file.is_snapshot:
                continue
            found, bad, end = self._read(file, 0)
            newer = [frame for frame in found if frame.seq > base]
            # A snapshot has no bodies. They are here still if the commit was made while it was
            # written, and other commits may refer to them even if that one was dropped.
            bodies.update({frame.seq: frame for frame in found if frame.body_size})
            frames += newer
            damage += bad
            seq = newer[-1].seq if newer else seq
            # The newest segment is where others go on, also when nothing in it is news. Of two
            # that were begun for the same number, it is the one that has entries.
            if found or file.seq > begun:
                path, offset, begun = file.path, end, file.seq
        self._position = _Position(seq, path, offset)
        frames = [bodies.pop(frame.seq, frame) for frame in frames]
        remains = list(bodies.values())
        return Tail(frames, reset or snapshot is not None, base, remains, damage)

    def _read(self, file: LogFile, start: int) -> tuple[list[Frame], list[Damage], int]:
        damage: list[Damage] = []
        with open(open_file(file.path), "rb") as stream:
            if start == 0:
                head = stream.read(framing.FILE_HEAD_SIZE)
                try:
                    framing.check_file_head(head, file.magic, file.name)
                except Corrupt as error:
                    # The frames name their file themselves, so they can still be read.
                    damage.append(Damage(file.path.name, 0, len(head), False, str(error)))
                start = framing.FILE_HEAD_SIZE
            stream.seek(start)
            data = stream.read()
        scan = framing.scan(data, file.name, base=start, file=file.path.name)
        return scan.frames, damage + scan.damage, scan.end

    def _last_seq(self, file: LogFile) -> int:
        frames, _, _ = self._read(file, 0)
        return frames[-1].seq if frames else file.seq - 1

    def _grown(self, position: _Position) -> bool:
        """Whether the log has good entries behind the position; called under the lock."""
        if _was_cut(position):
            self._position = _Position()
            return True
        for file in self.files():
            if file.is_snapshot:
                continue
            if file.path == position.path:
                if file.path.stat().st_size > position.offset:
                    found, _, _ = self._read(file, position.offset)
                    if found:
                        return True
            elif file.seq > position.seq and self._read(file, 0)[0]:
                return True
        return False

    def _end(self, seq: int) -> tuple[Path, int]:
        """Where the next frame goes: the newest segment if its end is clean, else a new one."""
        position = self._position
        segments = [file for file in self.files() if not file.is_snapshot]
        newest = max((file.seq for file in segments), default=0)
        for file in segments:
            if file.seq == newest and file.path not in self._sealed:
                size = file.path.stat().st_size
                begun = file.path == position.path and size == position.offset
                # An empty one that was begun for another number is what a failed try left.
                empty = file.seq == seq and size == framing.FILE_HEAD_SIZE
                if (begun or empty) and size < SEGMENT_LIMIT:
                    return file.path, size
        return self._begin_segment(seq)

    def _begin_segment(self, seq: int) -> tuple[Path, int]:
        name = secrets.token_bytes(framing.NAME_SIZE)
        path = self._folder / f"{seq:016x}-{name.hex()}.log"
        head = framing.file_head(framing.LOG_MAGIC, seq, name)
        # A dead writer's last entry in the segment before may not be on the disk yet, and what
        # follows in the new one builds on it.
        self.settle()
        self._publish(path, head, "segment data")
        return path, len(head)

    def settle(self) -> None:
        """Sync the newest segments and the names: what was read may be somebody's unsynced work."""
        segments = [file for file in self.files() if not file.is_snapshot]
        newest = max((file.seq for file in segments), default=0)
        for file in segments:
            if file.seq == newest or file.path == self._position.path:
                fd = open_file(file.path)
                try:
                    self._disk.sync_file(fd, "log tail")
                finally:
                    os.close(fd)
        self._disk.sync_directory(self._folder, "log names")

    def _publish(self, final: Path, data: bytes, what: Sync) -> None:
        draft = self._tmp / f"{secrets.token_hex(8)}-{secrets.token_hex(4)}"
        try:
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                write_all(fd, data, 0)
                self._disk.sync_file(fd, what)
                draft.rename(final)
            finally:
                os.close(fd)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise from_os_error(error, "writing the log") from error

    def _write(self, path: Path, offset: int, data: bytes) -> None:
        fd = open_file(path, os.O_WRONLY)
        try:
            if offset == framing.FILE_HEAD_SIZE:
                # The first entry makes the segment's name matter, whoever gave it that name. Not
                # after the write: who appends behind an entry may rely on the segment's name.
                self._disk.sync_directory(self._folder, "segment name")
            write_all(fd, data, offset)
            self._disk.sync_file(fd, "entry")
        except BaseException as error:
            # Nobody was told of this entry, but somebody may have read it. So its place is never
            # used again, which makes the file shorter than what they have read of it, for good.
            self._sealed.add(path)
            os.ftruncate(fd, min(os.fstat(fd).st_size, offset + framing.REMAINS))
            if isinstance(error, OSError):
                raise from_os_error(error, "writing the log") from error
            raise
        finally:
            os.close(fd)

    @contextmanager
    def _locked(self, reading: bool = False) -> Iterator[None]:
        """Nobody else appends inside this block, neither another thread nor another process."""
        with self._mutex:
            path = self._lock_path
            flags = os.O_RDONLY if reading and path.exists() else os.O_RDWR | os.O_CREAT
            try:
                fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise from_os_error(error, "locking the log") from error
            try:
                _lock(fd, path, self._patience)
                yield
            finally:
                # Closing alone would leave the lock to a child that was forked meanwhile.
                fcntl.flock(fd, fcntl.LOCK_UN)
                os.close(fd)


def _is_complete(frames: list[Frame]) -> bool:
    """Whether a snapshot has as many entries as its first one says."""
    first = decode_entry(frames[0].header) if frames else None
    return isinstance(first, Upto) and first.count == len(frames) - 1


def _was_cut(position: _Position) -> bool:
    """Whether an entry that was read was taken back, because it could not be made durable."""
    if position.path is None or position.offset <= framing.FILE_HEAD_SIZE:
        return False  # no entry was read from it
    return position.path.stat().st_size < position.offset


def _lock(fd: int, path: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    pause = 0.0002
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                holder = _lock_holder(os.fstat(fd).st_ino)
                raise Conflict(
                    f"the store's log has been locked for {patience:g} s{holder}",
                    hint=f"a stopped process may hold {path}; continue or end it",
                ) from None
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 1.5, 0.01)


def _lock_holder(inode: int) -> str:
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
            return f" by process {fields[4]}"
    return ""
