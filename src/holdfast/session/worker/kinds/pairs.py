"""Ends that belong together, such as those of a pipe, when the session has both.

Each end is an object of its own, perhaps in a record of its own. What they share is a `Pair`:
records keep what they share, so a restore makes the pair once, and the ends are handed out of it.
An end whose other end is not in the checkpoint would wait for nobody: it is given up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

LARGEST = 1 << 20  # bytes on their way from one end to the other

Key = tuple[int, int]  # device and inode


class Ends:
    """Two new descriptors, until those who need them have taken them."""

    def __init__(self, first: int, second: int) -> None:
        self._waiting = {0: first, 1: second}
        self._taken: dict[int, tuple[int, int]] = {}

    def take(self, side: int) -> int:
        """The descriptor of one side: the first who asks has it, and others have one like it."""
        if side in self._waiting:
            fd = self._waiting.pop(side)
            self._taken[side] = fd, os.fstat(fd).st_ino
            return fd
        fd, inode = self._taken[side]
        again = os.dup(fd)
        if os.fstat(again).st_ino != inode:
            os.close(again)
            raise OSError("its other end has been closed meanwhile")
        return again

    def close(self, side: int) -> None:
        """Nobody had this one open."""
        os.close(self._waiting.pop(side))

    def __del__(self) -> None:
        for fd in self._waiting.values():
            os.close(fd)


class Pair:
    """Two ends as a capture finds them."""

    def __init__(self, *keys: Key, reason: str = "") -> None:
        self.keys = keys
        self.reason = reason  # why it is not brought back
        self.closed: set[int] = set()  # sides that nobody has open, in any process
        self.held: dict[int, bytes | None] = {}  # by id of an end: what is in its own buffers


class End(NamedTuple):
    """One end, as a capture finds it."""

    pair: Pair
    side: int
    about: Any  # what else its kind needs to know of the descriptor


class Pairs:
    """Those that a capture has met, so that it looks at each only once."""

    def __init__(self) -> None:
        self._found: dict[Key, Pair] = {}
        self._caught: dict[int, End] = {}

    def catch(self, fd: int, look: Look) -> None:
        """Look at a descriptor now: a copy of the process will no longer have it."""
        self._caught[fd] = look(self, fd)

    def __contains__(self, fd: int) -> bool:
        """Whether a descriptor was caught before the process was copied."""
        return fd in self._caught

    def end(self, fd: int, look: Look) -> End:
        """The end that a descriptor is."""
        return self._caught.get(fd) or look(self, fd)

    def of(self, fd: int, caught: Callable[[int], Pair]) -> Pair:
        """The pair that a descriptor belongs to; `caught` looks at one that was not met yet."""
        key = key_of(os.fstat(fd))
        if key not in self._found:
            pair = caught(fd)
            self._found |= dict.fromkeys((key, *pair.keys), pair)
        return self._found[key]


Look = Callable[[Pairs, int], End]


def key_of(found: os.stat_result) -> Key:
    return found.st_dev, found.st_ino


def lonely(ends: Iterable[tuple[Pair, int]]) -> list[Pair]:
    """Pairs of which one end was met, but not the other, though somebody has it."""
    met: dict[Pair, set[int]] = {}
    for pair, side in ends:
        met.setdefault(pair, set()).add(side)
    return [pair for pair, sides in met.items() if len(sides | pair.closed) < 2]
