"""The table of mounts, as the kernel prints it (proc(5), mountinfo)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_ESCAPE = re.compile(rb"\\([0-7]{3})")  # a space, a tab, a line's end, a backslash


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo."""

    point: str
    kind: str
    options: tuple[str, ...]  # of the file system, not of the mount


def parse_mountinfo(table: bytes) -> list[Mount]:
    """The mounts in the order in which they were made; later ones lie on top of earlier ones."""
    mounts = []
    for line in table.splitlines():
        before, dash, after = line.partition(b" - ")
        fields, tail = before.split(b" "), after.split(b" ")
        if dash and len(fields) >= 6 and len(tail) >= 3:
            options = tuple(_plain(each) for each in split(tail[2], b","))
            mounts.append(Mount(_plain(fields[4]), _plain(tail[0]), options))
    return mounts


def mounts_here() -> list[Mount]:
    """The mounts that this process sees."""
    return parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())


def _plain(field: bytes) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), field))


def split(text: bytes, separator: bytes) -> list[bytes]:
    """Split at separators without a backslash before them: overlayfs escapes those in paths."""
    return [
        each.replace(b"\\" + separator, separator)
        for each in re.split(rb"(?<!\\)" + re.escape(separator), text)
    ]
