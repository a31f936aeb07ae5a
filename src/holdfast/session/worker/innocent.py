"""Which pickles were searched for secrets before, and had none.

A search takes longer than the pickle that it is about. The table lies in memory that copies of the
process share: what one capture has found out in a copy, the next one knows in another.
"""

from __future__ import annotations

import mmap

from holdfast.model.secrets import USUAL, Rule
from holdfast.session.worker.secrets import suspect

_SLOTS = 1 << 15  # each is one pickle, or a piece of 64 KB of a large one
_WORTH = 1 << 7  # bytes that take longer to search than to look up
_BITS = (1 << 64) - 1


class Innocent:
    """A table of hashes, in which a newer one takes the place of an older one."""

    def __init__(self, rule: Rule = USUAL) -> None:
        self._rule = rule
        self._marks = memoryview(mmap.mmap(-1, 8 * _SLOTS)).cast("Q")

    def suspect(self, data: bytes) -> bool:
        """`secrets.suspect`, but for bytes in which it has found nothing before."""
        if self.knows(data):
            return False
        found = suspect(data, self._rule)
        if not found and len(data) >= _WORTH:
            slot, mark = _place(data)
            self._marks[slot] = mark
        return found

    def knows(self, data: bytes) -> bool:
        """Whether these bytes need no search."""
        if len(data) < _WORTH:
            return False
        slot, mark = _place(data)
        return self._marks[slot] == mark


def _place(data: bytes) -> tuple[int, int]:
    mark = hash(data) & _BITS | 1  # zero is what an empty slot has
    return (mark >> 1) % _SLOTS, mark
