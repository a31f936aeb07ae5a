"""The log of a local directory: segment files, appended to under a lock with one sync."""

from __future__ import annotations

import os
import secrets
import time
import weakref
from collections.abc import Iterable, Set
from pathlib import Path
from typing import NamedTuple

from holdfast.model.disk import Disk, Sync
from holdfast.model.errors import Conflict, from_os_error
from holdfast.model.files import PRIVATE, Access, create
from holdfast.store.backends.contract import Behind, Tail
from holdfast.store.backends.files import open_file, write_all
from holdfast.store.backends.local import logfiles
from holdfast.store.backends.local.logfiles import LogFile
from holdfast.store.backends.local.loglock import PATIENCE, LogLock
from holdfast.store.backends.local.runway import Runway, cut, is_clear, used_size
from holdfast.store.backends.local.sweeping import draft_path
from holdfast.store.log import frames as framing
from holdfast.store.log.frames import Buffer, Damage, Frame, Signed

SEGMENT_LIMIT = 64 * 1024 * 1024
_TICK = 20_000_000  # ns; file systems tell times apart that are further apart than this
_SECONDS = 2_000_000_000  # ns; the same of those that keep only seconds, or every other one
_NOTHING = Tail([])


class _Position(NamedTuple):
    """How far the log was read: behind entry `seq`, at `offset` of the segment `path`, where it
    ended, or had only zeros, when `clear`."""

    seq: int = 0
    path: Path | None = None
    offset: int = 0
    clear: bool = True


class LocalLog:
    """Reads and appends. One thread at a time may use it; the backend sees to that."""

    def __init__(
        self,
        folder: Path,
        tmp: Path,
        disk: Disk,
        patience: float = PATIENCE,
        access: Access = PRIVATE,
    ) -> None:
        self._folder = folder
        self._access = access
        self._place = str(folder)  # looked at often, and a Path is slow to say where it is
        self._lock = LogLock(folder / "lock", patience, access)
        self._tmp = tmp
        self._disk = disk
        self._position = _Position()
        self._names: tuple[int, bool] = (0, False)  # when they last changed, and if that tells all
        self._newest: list[Path] = []  # where entries are added, as far as the names say
        self._runway = Runway(self._lock)
        self._sealed: set[Path] = set()  # segments in which a write of ours failed
        weakref.finalize(self, self._runway.give_back)

    def files(self) -> list[LogFile]:
        changed = self._folder.stat().st_mtime_ns
        tick = _TICK if changed % 1_000_000_000 else _SECONDS
        self._names = changed, time.time_ns() - changed >= tick
        self._runway.check()
        listed = logfiles.listed(self._folder)
        found = sorted(file for file, is_file in listed if is_file)
        segments = [file for file in found if not file.is_snapshot]
        last = max((file.seq for file in segments), default=0)
        self._newest = [file.path for file in segments if file.seq == last]
        path = self._position.path
        if path is not None and self._newest == [path]:
            self._newest = [path]  # what is the same object is soon compared
        return found

    def size(self, file: LogFile) -> int:
        """How many bytes a file has, without the zeros that only lie ahead."""
        position = self._position
        known = position.offset if file.path == position.path else framing.FILE_HEAD_SIZE
        return used_size(file.path, known)

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
        with self._lock.held():
            position = self._position
            if position.seq != signed.seq - 1:
                raise Behind
            path, offset = position.path, position.offset
            if not self._is_still() or path in self._sealed or offset >= SEGMENT_LIMIT:
                if self._grown(position):
                    raise Behind
                path, offset = self._end(signed.seq)
            assert path is not None  # what is still has been read
            name = logfiles.segment_name(path)
            pieces = framing.frame_pieces(signed, name)
            # Whoever makes room must not take it for what may come.
            self._write(path, offset, pieces, spare=not signed.frees)
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
            self._position = _Position(signed.seq, path, offset + sum(map(len, pieces)))
            return frame

    def audit(self) -> list[Damage]:
        """Everything that is not a good frame; harmless remains are marked `torn`."""
        with self._lock.held(reading=True):
            return logfiles.audit(self._folder)

    def seal(self) -> list[bytes]:
        """Let the next entry begin a new segment; returns those that get no more entries."""
        with self._lock.held():
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
        data = framing.encode_snapshot(name, upto, frames)
        self._publish(logfiles.snapshot_path(self._folder, upto.seq, name), data, "snapshot data")
        return len(data)

    def trim(self, before: int, needed: Set[bytes]) -> int:
        """Delete what the newest snapshot covers, except the volumes in `needed`. The snapshot's
        name must have been settled: it may be the work of a collector that died.

        Whoever says what is needed has read the log up to entry `before`, and settled it then;
        of what a newer snapshot covers they know nothing.
        """
        freed = 0
        with self._lock.held():
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
                    last = min(later) - 1 if later else file.last_seq()
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
        changed, tells = self._names
        if not tells or position.path is None or [position.path] != self._newest:
            return False
        return (
            position.clear
            and os.stat(self._place).st_mtime_ns == changed
            and self._runway.ends_at(position.path, position.offset)
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
        seq, path, offset, clear = position
        for file in files:
            if file.is_snapshot or not (file.path == position.path or file.seq > position.seq):
                continue
            reading = file.read(offset if file.path == position.path else 0)
            found = reading.frames
            frames += found
            damage += reading.damage
            if found or path is None:
                seq = found[-1].seq if found else seq
                path, offset = file.path, reading.end
            if file.path == path:
                clear = reading.is_clear
        self._position = _Position(seq, path, offset, clear)
        return Tail(frames, damage=damage)

    def _from_start(self, files: list[LogFile], reset: bool) -> Tail:
        snapshot = max((f for f in files if f.is_snapshot), default=None)
        frames: list[Frame] = []
        damage: list[Damage] = []
        bodies: dict[int, Frame] = {}
        base = 0
        if snapshot is not None:
            found, bad, _ = snapshot.read()
            # With the snapshot's own entry, which says nothing but is signed. Leaving the first
            # frame out would lose another one where that entry is damaged.
            frames += found
            damage += bad
            base = snapshot.seq
        seq, path, offset, begun, clear = base, None, 0, 0, True
        for file in files:
            if file.is_snapshot:
                continue
            reading = file.read()
            found, bad, end = reading
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
                path, offset, begun, clear = file.path, end, file.seq, reading.is_clear
        self._position = _Position(seq, path, offset, clear)
        frames = [bodies.pop(frame.seq, frame) for frame in frames]
        remains = list(bodies.values())
        return Tail(frames, reset or snapshot is not None, base, remains, damage)

    def _grown(self, position: _Position) -> bool:
        """Whether the log has good entries behind the position; called under the lock."""
        if _was_cut(position):
            self._position = _Position()
            return True
        for file in self.files():
            if file.is_snapshot:
                continue
            if file.path == position.path:
                longer = file.path.stat().st_size > position.offset
                if longer and file.read(position.offset).frames:
                    return True
            elif file.seq > position.seq and file.read().frames:
                return True
        return False

    def _end(self, seq: int) -> tuple[Path, int]:
        """Where the next frame goes: the newest segment if its end is clean, else a new one."""
        position = self._position
        segments = [file for file in self.files() if not file.is_snapshot]
        newest = max((file.seq for file in segments), default=0)
        for file in segments:
            if file.seq == newest and file.path not in self._sealed:
                if file.path == position.path:
                    offset = position.offset
                elif file.seq == seq:
                    offset = framing.FILE_HEAD_SIZE
                else:
                    continue  # an empty one, begun for another number, is what a failed try left
                if offset < SEGMENT_LIMIT and is_clear(file.path, offset):
                    return file.path, offset
        return self._begin_segment(seq)

    def _begin_segment(self, seq: int) -> tuple[Path, int]:
        name = secrets.token_bytes(framing.NAME_SIZE)
        path = logfiles.segment_path(self._folder, seq, name)
        head = framing.file_head(framing.LOG_MAGIC, seq, name)
        if self._position.path is not None:
            cut(self._position.path, self._position.offset)
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
        draft = draft_path(self._tmp)
        try:
            fd = create(draft, self._access)
            try:
                write_all(fd, data, 0)
                self._disk.sync_file(fd, what)
                draft.rename(final)
            finally:
                os.close(fd)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise from_os_error(error, "writing the log") from error

    def _write(self, path: Path, offset: int, pieces: list[Buffer], *, spare: bool) -> None:
        self._runway.enter(path)
        try:
            if offset == framing.FILE_HEAD_SIZE:
                # The first entry makes the segment's name matter, whoever gave it that name. Not
                # after the write: who appends behind an entry may rely on the segment's name.
                self._disk.sync_directory(self._folder, "segment name")
            self._disk.sync_file(self._runway.write(pieces, offset, spare=spare), "entry")
        except BaseException as error:
            # Nobody was told of this entry, but somebody may have read it. So its place is never
            # used again, which makes the file shorter than what they have read of it, for good.
            self._sealed.add(path)
            self._runway.take_back(pieces, offset)
            if isinstance(error, OSError):
                raise from_os_error(error, "writing the log") from error
            raise
        self._runway.give_way(offset)

    def close(self) -> None:
        """Let go of the files that are kept open; whoever goes on opens them again."""
        self._runway.close()
        self._lock.close()


def _was_cut(position: _Position) -> bool:
    """Whether an entry that was read was taken back, because it could not be made durable."""
    if position.path is None or position.offset <= framing.FILE_HEAD_SIZE:
        return False  # no entry was read from it
    return position.path.stat().st_size < position.offset
