"""What the system has of a file in its memory."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path


def resident(path: Path) -> list[bool]:
    """Which pages of a file are in the file cache."""
    with path.open("rb") as file:
        pages = -(-path.stat().st_size // mmap.PAGESIZE)
        found = (ctypes.c_ubyte * pages)()
        with mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE) as own:
            anchor = ctypes.c_char.from_buffer(own)  # private, so it may be taken for our own
            start, size = ctypes.c_void_p(ctypes.addressof(anchor)), ctypes.c_size_t(len(own))
            assert ctypes.CDLL(None).mincore(start, size, found) == 0
            del anchor
    return [bool(each & 1) for each in found]
