"""Printing: two numbers for each page, by which the pages that changed are found without reading
how they were.

Where the parent is compressed, or on another machine, to read a block of it takes several times as
long as to hash the pages of the new one. So the prints of what is written are kept, each block's
under the block's own hash, and compared with those of the next time.

What is being saved must not be able to make a page that changed look like one that did not. Each of
the two numbers is a hash of the page XORed with a page of secret bytes, with a secret seed: in
XXH3, these make every factor of every product that is summed up a secret of its own, so that who
does not know them can only guess, once for each page and checkpoint, at odds of about 2^-64
(docs/decisions/0042). And a block's own hash is that of its bytes: on a wrong print a read would
fail, not lie.
"""

from __future__ import annotations

import threading
from itertools import repeat
from typing import TYPE_CHECKING

from xxhash import xxh3_64_digest

from holdfast.store.arrays import np
from holdfast.store.chunks.chunk import ID_SIZE, ZERO_ID, Buffer
from holdfast.store.parts.blocks import PAGE, PAGES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

SECRET_SIZE = 2 * PAGE + 8
_PRINT = 8  # bytes of one number
_MARKS = 2 * PAGES * _PRINT  # bytes for a block: one number of every page, then the other
_ROW = ID_SIZE + _MARKS


class Ink:
    """What prints are made with; whoever has it could forge them. Thread-safe."""

    def __init__(self, secret: bytes) -> None:
        self._pads = np.frombuffer(secret, np.uint64, 2 * PAGE // 8).reshape(2, 1, -1)
        self._seed = int.from_bytes(secret[2 * PAGE :], "little")
        self._local = threading.local()
        self._blank = np.frombuffer(self.marks(np.zeros((PAGES, PAGE // 8), np.uint64)), np.uint64)

    def marks(self, pages: Words) -> bytes:
        """The prints of a block's pages, a row each; of those that it does not have, zeros."""
        room, views = self._room()
        count = len(pages)
        # Both at once: each operation on so much lets other threads take over, which takes longer
        # than the operation.
        np.bitwise_xor(pages, self._pads, out=room[:, :count])
        if count < PAGES:
            views = views[:count] + views[PAGES : PAGES + count]
        prints = b"".join(map(xxh3_64_digest, views, repeat(self._seed)))
        if count == PAGES:
            return prints
        ends = (prints[: count * _PRINT], prints[count * _PRINT :])
        return b"".join(each.ljust(PAGES * _PRINT, b"\0") for each in ends)

    def marks_among_zeros(self, count: int, used: NDArray[np.intp], pages: Words) -> bytes:
        """The same for a block of `count` pages that are zero but for those `used`."""
        found = self._blank.reshape(2, PAGES).copy()
        found[:, count:] = 0
        few = np.frombuffer(self.marks(pages), np.uint64).reshape(2, PAGES)
        found[:, used] = few[:, : len(used)]
        return found.tobytes()

    def _room(self) -> tuple[Words, list[memoryview]]:
        """Where a thread puts pages that it hashes, and the pages of it."""
        if not hasattr(self._local, "room"):
            room = np.empty((2, PAGES, PAGE // 8), dtype=np.uint64)
            self._local.room = room, [page.data.cast("B") for half in room for page in half]
        found: tuple[Words, list[memoryview]] = self._local.room
        return found


class Printing:
    """The prints of a part that is being written, beside those of how it was before."""

    def __init__(self, ink: Ink, before: Buffer = b"") -> None:
        """`before` is what `encode` gave; anything else counts as nothing."""
        self.marks, self.marks_among_zeros = ink.marks, ink.marks_among_zeros
        self._before = memoryview(before) if len(before) % _ROW == 0 else memoryview(b"")
        self._rows: list[bytes] = []

    def changed(self, block: int, was: bytes, marks: bytes) -> NDArray[np.intp] | None:
        """Which pages are not as they were when the block's hash was this one; None when that is
        not known."""
        old = self._old(block, was)
        if old is None:
            return None
        # One row, because to reduce a short axis takes longer than all else.
        differ = np.frombuffer(marks, np.uint64) ^ np.frombuffer(old, np.uint64)
        found: NDArray[np.intp] = (differ[:PAGES] | differ[PAGES:]).nonzero()[0]
        return found

    def enter(self, found: bytes, marks: bytes | None) -> None:
        """The next block's hash and its prints; None: they are those that are known of it."""
        if marks is None and found != ZERO_ID:
            old = self._old(len(self._rows), found)
            found, marks = (ZERO_ID, None) if old is None else (found, bytes(old))
        self._rows.append(found + (marks or bytes(_MARKS)))

    def encode(self) -> bytes:
        return b"".join(self._rows)

    def _old(self, block: int, of: bytes) -> memoryview | None:
        row = self._before[block * _ROW : (block + 1) * _ROW]
        return row[ID_SIZE:] if row[:ID_SIZE] == of else None
