"""The memory that a cell may use. Only cells have a limit: captures and restores need their own."""

from __future__ import annotations

import mmap
import resource
from types import TracebackType

_RESERVE = 8 << 20
_SLACK = 4 << 20  # for a cell that begins at the limit: without it, none could make room again
_PAGE = mmap.PAGESIZE


class Limited:
    """In this block, allocations beyond so many bytes of the whole process fail.

    What can be written to counts (RLIMIT_DATA); mapped libraries and files do not. Only the soft
    limit moves, so that it can be lifted again without privileges.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._reserve: mmap.mmap | None = None

    def __enter__(self) -> None:
        # Let go at the end, so that there is room to lift the limit and to say what happened.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._reserve = mmap.mmap(-1, _RESERVE, flags=flags)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        held = max(self._most, _in_use() + _SLACK)
        held = held if hard == resource.RLIM_INFINITY else min(held, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (held, hard))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._reserve is not None:
            self._reserve.close()
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)  # user code may have lowered it
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def _in_use() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[5]) * _PAGE
