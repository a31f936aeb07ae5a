"""Memory of a checkpoint in this process: mapped copy-on-write, so that nothing is read before it
is needed, and nothing that is written reaches the store.

Each buffer has mappings of its own: two that are equal must not become one. An array is laid over
the memory that malloc gave it, which stays malloc's: it can be resized and freed like any other.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.protocol.session_messages import MappingMessage
from holdfast.session.layout import BUFFERS
from holdfast.session.worker.memory.pagemap import PAGE
from holdfast.session.worker.memory.tracker import known_as

_FEW = 16 * PAGE  # a shorter run is copied: each mapping costs the kernel as much
_MOST = 20_000  # mappings in all; a process may have 65530
_IS_MMAPPED = 2  # in the header that glibc keeps before each piece of memory
_MAP_FIXED = 0x10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip


class Overlay:
    """The memory of one checkpoint, by the names of its parts. The files are open until all of it
    has been asked for; what is mapped stays."""

    def __init__(
        self,
        mapped: Mapping[str, MappingMessage],
        files: Sequence[int],
        placed: Callable[[int, int, str], None] = lambda address, size, label: None,
    ) -> None:
        """`placed` is told of each array that has its bytes, before any other code sees it."""
        self._placed = placed
        self._mapped = mapped
        self._files = files
        self._count = 0
        self._glibc = platform.libc_ver()[0] == "glibc"

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapped)

    def __contains__(self, name: object) -> bool:
        return name in self._mapped

    def placed(self, address: int, size: int, label: str) -> None:
        """An array has its bytes from there, and nobody has written to it yet."""
        asked = self._mapped.get(BUFFERS + label)
        if asked is not None:
            self._placed(address, size, known_as(label, asked.skew))

    def view(self, name: str) -> memoryview:
        """The bytes of a part, as a buffer of its own."""
        asked = self._mapped[name]
        region = mmap.mmap(-1, -(-(asked.skew + asked.size) // PAGE) * PAGE, mmap.MAP_PRIVATE)
        anchor = ctypes.c_char.from_buffer(region)
        start = ctypes.addressof(anchor)
        del anchor
        self._fill(asked, start, start, start + len(region))
        return memoryview(region)[asked.skew : asked.skew + asked.size]

    def lay(self, name: str, array: Any) -> bool:
        """Over a new array, if its memory is where it can be laid; else nothing is done."""
        asked = self._mapped.get(name)
        address: int = array.__array_interface__["data"][0]
        if asked is None or array.nbytes != asked.size or address % PAGE != asked.skew:
            return False
        if not self._glibc or asked.skew != 16:
            return False
        # Only what malloc got from the kernel for this alone: it is zero, and shares no page.
        if not ctypes.c_size_t.from_address(address - 8).value & _IS_MMAPPED:
            return False
        self._fill(asked, address - asked.skew, address, address + asked.size)
        return True

    def _fill(self, asked: MappingMessage, grid: int, first: int, end: int) -> None:
        """Map the pages that lie wholly between two addresses, and copy the rest."""
        low, high = -(-first // PAGE) * PAGE, end // PAGE * PAGE
        for start, length, number, offset in asked.runs:
            for at, size, maps in _cut(grid + start, length, low, high, first, end):
                where = offset + at - grid - start
                if maps and size >= _FEW and self._count < _MOST and where % PAGE == 0:
                    self._map(at, size, self._files[number], where)
                else:
                    _copy(at, size, self._files[number], where)
        # Nearly every page of these changes: mapping them would cost four times as much.
        for start, length, number, offset in asked.under:
            at, until = max(grid + start, first), min(grid + start + length, end)
            if at < until:
                _copy(at, until - at, self._files[number], offset + at - grid - start)
        if asked.deltas:
            self._patch(asked, grid, first, end)

    def _patch(self, asked: MappingMessage, grid: int, first: int, end: int) -> None:
        """XOR deltas onto what they lie on. Raises Corrupt."""
        import numpy

        from holdfast.store.parts import deltas
        from holdfast.store.parts.blocks import BLOCK

        read: dict[int, bytes] = {}
        for start, offset, size, at in asked.deltas:
            if offset not in read:
                read[offset] = os.pread(self._files[0], size, offset)
            block = grid + start
            low, high = max(block, first), min(block + BLOCK, end)
            if low >= high:
                continue
            mine = numpy.frombuffer(_bytes(low, high - low), numpy.uint8)
            if high - low == BLOCK:
                deltas.apply(mine.view(numpy.uint64), read[offset], at)
                continue
            # At both ends: what is beyond them is not ours.
            whole = numpy.zeros(BLOCK, numpy.uint8)
            whole[low - block : high - block] = mine
            deltas.apply(whole.view(numpy.uint64), read[offset], at)
            mine[:] = whole[low - block : high - block]

    def _map(self, address: int, size: int, file: int, offset: int) -> None:
        protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
        found = _libc.mmap(address, size, protection, flags, file, offset)
        if found != address:
            code = ctypes.get_errno()
            raise OSError(code, f"mapping {size} bytes: {os.strerror(code)}")
        self._count += 1


def _cut(
    start: int, length: int, low: int, high: int, first: int, end: int
) -> Iterator[tuple[int, int, bool]]:
    """A run in pieces: before the first whole page, whole pages, and after the last."""
    stop = min(start + length, end)
    start = max(start, first)
    for begin, limit, maps in (
        (first, low, False),
        (low, high, True),
        (max(low, high), end, False),
    ):
        at, until = max(start, begin), min(stop, limit)
        if at < until:
            yield at, until - at, maps


def _bytes(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _copy(address: int, size: int, file: int, offset: int) -> None:
    target = _bytes(address, size)
    while target:
        done = os.preadv(file, [target], offset)
        if not done:
            raise OSError("the memory of the checkpoint is cut short")
        target, offset = target[done:], offset + done
