"""Whose memory a mapping is: what another process can change is not for the kernel to tell us.

The kernel watches any mapping, but only for what this process writes. What is mapped shared can be
written to elsewhere, and so can the file behind a private one, until a page of it was copied.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator

import msgspec

_SHARED = 8
_NAME = 4096  # bytes: the longest path


class _Query(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in (
            "size", "query_flags", "query_addr", "vma_start", "vma_end", "vma_flags",
            "vma_page_size", "vma_offset", "inode",
        )),
        *((name, ctypes.c_uint32) for name in (
            "dev_major", "dev_minor", "vma_name_size", "build_id_size",
        )),
        ("vma_name_addr", ctypes.c_uint64), ("build_id_addr", ctypes.c_uint64),
    ]  # fmt: skip


_PROCMAP_QUERY = 3 << 30 | ctypes.sizeof(_Query) << 16 | ord("f") << 8 | 17  # Linux 6.11
_MAPS = "/proc/self/maps"
_GONE = " (deleted)"

File = tuple[int, str]  # inode and path: a store's names do not come again


class Mapping(msgspec.Struct, frozen=True):
    """One mapping of this process."""

    start: int
    end: int
    shared: bool
    file: File | None


class Mappings:
    """Knows which memory nobody but this process can change."""

    def __init__(self) -> None:
        self._fixed: frozenset[File] = frozenset()

    def fixed(self, files: Iterable[int]) -> None:
        """From now on, these open files, and no others, are known to stay as they are."""
        self._fixed = frozenset(map(_file, files))

    def own(self, start: int, end: int) -> bool:
        """Whether all memory there is ours alone. In doubt, it is not."""
        try:
            found = list(look(start, end))
        except OSError:
            return False
        at = start
        for each in found:
            if each.start > at or each.shared:
                return False
            if each.file is not None and each.file not in self._fixed:
                return False
            at = each.end
        return at >= end


def look(start: int, end: int) -> Iterator[Mapping]:
    """The mappings from an address on, up to another or the first gap. Raises OSError."""
    file = os.open(_MAPS, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield from asked(file, start, end)
    except OSError as error:
        if error.errno != errno.ENOTTY:
            raise
        yield from listed(start, end)  # a kernel before 6.11
    finally:
        os.close(file)


def asked(file: int, start: int, end: int) -> Iterator[Mapping]:
    """The kernel is asked for each. Raises OSError."""
    name = ctypes.create_string_buffer(_NAME)
    while start < end:
        query = _Query(size=ctypes.sizeof(_Query), query_addr=start)
        query.vma_name_size, query.vma_name_addr = _NAME, ctypes.addressof(name)
        try:
            fcntl.ioctl(file, _PROCMAP_QUERY, query)
        except FileNotFoundError:  # nothing is mapped there
            return
        path = os.fsdecode(name.value) if query.vma_name_size else ""
        yield _mapping(
            query.vma_start, query.vma_end, bool(query.vma_flags & _SHARED), query.inode, path
        )
        start = query.vma_end


def listed(start: int, end: int) -> Iterator[Mapping]:
    """All are read: as right, and 100 times slower. Raises OSError."""
    with open(_MAPS, "rb") as file:
        lines = file.read().splitlines()
    for line in lines:
        where, kind, _, _, inode, *path = line.split(maxsplit=5)
        first, last = (int(each, 16) for each in where.split(b"-"))
        if last > start and first < end:
            name = os.fsdecode(path[0]) if path else ""
            yield _mapping(first, last, kind.endswith(b"s"), int(inode), name)


def _mapping(start: int, end: int, shared: bool, inode: int, path: str) -> Mapping:
    return Mapping(start, end, shared, (inode, path.removesuffix(_GONE)) if inode else None)


def _file(fd: int) -> File:
    return os.fstat(fd).st_ino, os.readlink(f"/proc/self/fd/{fd}").removesuffix(_GONE)
