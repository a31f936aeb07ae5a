"""Rooms: memory in which the chunks of a small draft wait for their commit.

They lie there one after the other, as the log will have them, and the next draft gets the same
memory: new pages take longer to get than to fill, on a machine that is lent its memory by another
even longer than to write to the disk.
"""

from __future__ import annotations

from collections import deque

from holdfast.store.chunks.chunk import Buffer

SIZE = 1024 * 1024
_SPARE = 4  # that nobody uses and that are kept

_spare: deque[bytearray] = deque(maxlen=_SPARE)


class Room:
    """Takes chunks until it is full."""

    def __init__(self) -> None:
        try:
            self._memory = _spare.pop()
        except IndexError:
            self._memory = bytearray(SIZE)
        self.used = 0  # bytes

    @property
    def content(self) -> memoryview:
        """All that lies there."""
        return memoryview(self._memory)[: self.used]

    def lay(self, data: Buffer) -> memoryview | None:
        """A copy of these bytes, or None where there is no room for them."""
        end = self.used + len(data)
        if end > SIZE:
            return None
        place = memoryview(self._memory)[self.used : end]
        place[:] = data
        self.used = end
        return place

    def leave(self) -> None:
        """Nobody looks at what lies there any more; may be called twice."""
        memory, self._memory, self.used = self._memory, bytearray(), 0
        if memory:
            _spare.append(memory)
