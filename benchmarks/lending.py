"""Memory that a machine must be lent by its host: nobody's cost.

A virtual machine may give unused memory back, some seconds after it was freed, and then waits for
it: here 2 GB took 4.5 s to touch, and 0.09 s within the next two seconds. Whoever runs first would
pay for what the next one finds, so everybody finds it: before each measurement it is asked for.
"""

from __future__ import annotations

import mmap

PAGE = 4096


def lend(size: int) -> None:
    """Have the machine hold this many bytes, and free them at once."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, size, flags=private) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for offset in range(0, size, PAGE):
            memory[offset] = 1
