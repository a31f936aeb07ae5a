"""The files of a local log: segments and snapshots, as their names tell, and what is in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from holdfast.model.errors import Corrupt, Unsupported
from holdfast.store.backends.files import open_file
from holdfast.store.log import frames as framing
from holdfast.store.log.entries import Upto, decode_entry
from holdfast.store.log.frames import Damage, Frame, Scan

_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{32})\.(log|snap)")


@dataclass(frozen=True, slots=True, order=True)
class LogFile:
    """A segment or a snapshot."""

    seq: int
    path: Path
    name: bytes
    is_snapshot: bool

    @property
    def magic(self) -> bytes:
        return framing.SNAP_MAGIC if self.is_snapshot else framing.LOG_MAGIC

    def read(self, start: int = 0) -> Scan:
        """What it holds from `start` on. Raises FileNotFoundError when a collector was faster."""
        damage: list[Damage] = []
        with open(open_file(self.path), "rb") as stream:
            if start == 0:
                head = stream.read(framing.FILE_HEAD_SIZE)
                try:
                    framing.check_file_head(head, self.magic, self.name)
                except Corrupt as error:
                    # The frames name their file themselves, so they can still be read.
                    damage.append(Damage(self.path.name, 0, len(head), False, str(error)))
                start = framing.FILE_HEAD_SIZE
            stream.seek(start)
            data = stream.read()
        found = framing.scan(
            data, self.name, base=start, file=self.path.name, runway=not self.is_snapshot
        )
        return found._replace(damage=damage + found.damage)

    def last_seq(self) -> int:
        frames = self.read().frames
        return frames[-1].seq if frames else self.seq - 1


def segment_path(folder: Path, seq: int, name: bytes) -> Path:
    return folder / f"{seq:016x}-{name.hex()}.log"


def snapshot_path(folder: Path, seq: int, name: bytes) -> Path:
    return folder / f"{seq:016x}-{name.hex()}.snap"


@lru_cache(maxsize=64)  # of the few that are written to; a Path is slow to take apart
def segment_name(path: Path) -> bytes:
    """The name that a segment's path tells."""
    return bytes.fromhex(path.stem.partition("-")[2])


def listed(folder: Path) -> Iterator[tuple[LogFile, bool]]:
    """All that has a name such as the log's files have, and whether it is a file."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if match := _NAME.fullmatch(entry.name):
                seq, name = int(match[1], 16), bytes.fromhex(match[2])
                path = folder / entry.name
                yield LogFile(seq, path, name, match[3] == "snap"), entry.is_file()


def audit(folder: Path) -> list[Damage]:
    """Everything that is not a good frame; harmless remains are marked `torn`. Whoever asks sees to
    it that nobody appends meanwhile."""
    found = sorted(listed(folder))
    files = [file for file, is_file in found if is_file]
    segments = [file for file in files if not file.is_snapshot]
    damage = [
        Damage(file.path.name, 0, 0, False, "this is not a file")
        for file, is_file in found
        if not is_file
    ]
    for file in files:
        damage += _snapshot_damage(file) if file.is_snapshot else _segment_damage(file, segments)
    return damage


def _snapshot_damage(file: LogFile) -> Iterator[Damage]:
    # A snapshot is published whole, so nothing in it is the remains of an append.
    frames, bad, end = file.read()
    if not bad and not _is_complete(frames):
        yield Damage(file.path.name, end, 0, False, "entries are missing")
    for found in bad:
        yield _told(found, remains=False)


def _segment_damage(file: LogFile, segments: list[LogFile]) -> Iterator[Damage]:
    frames, bad, _ = file.read()
    last = frames[-1].seq if frames else file.seq - 1
    continued = any(other.seq == last + 1 for other in segments if other != file)
    for found in bad:
        remains = found.torn and continued
        # What follows the last entry of all may be damaged, or never have been finished.
        unsettled = found.torn and not remains and file == segments[-1]
        more = f" (number {last + 1}; an interrupted append looks the same)" if unsettled else ""
        yield _told(found, remains, more, unsettled)


def _told(found: Damage, remains: bool, more: str = "", unsettled: bool = False) -> Damage:
    what = found.what or (
        "the remains of an interrupted append"
        if remains
        else "an entry that does not match its checksum"
    )
    return Damage(found.file, found.offset, found.size, remains, what + more, unsettled)


def _is_complete(frames: list[Frame]) -> bool:
    """Whether a snapshot has as many entries as its first one says. Who signed that is for others
    to judge; one that makes no sense says nothing."""
    try:
        first = decode_entry(frames[0].header) if frames else None
    except (Corrupt, Unsupported):
        return False
    return isinstance(first, Upto) and first.count == len(frames) - 1
