"""Deltas: what to XOR onto a block where few of its words changed, but most of its pages.

    count u32 | gaps u16[count] | first bytes of the words u8[count] | ... | eighth bytes u8[count]

A gap is how far a word is behind the one before it, the first one behind the block's beginning.
Bytes that mean the same stand together, because they are alike where the words are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.model.errors import Corrupt
from holdfast.store.arrays import np
from holdfast.store.chunks.chunk import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

_WORD = 8
_HEAD = 4
_EACH = 2 + _WORD  # bytes that stand for one word


def encode(before: Words, now: Words) -> bytes | None:
    """What leads from one block to the other; None when that is too much to be worth it."""
    difference = before ^ now
    # Counting takes a twentieth of the time that finding takes.
    if np.count_nonzero(difference) > difference.size // 4:
        return None
    where = np.flatnonzero(difference)
    gaps = np.diff(where, prepend=0).astype("<u2")
    planes = difference[where].astype("<u8").view(np.uint8).reshape(-1, _WORD).T
    return len(where).to_bytes(_HEAD, "little") + gaps.tobytes() + planes.tobytes()


def apply(block: Words, deltas: Buffer, at: int) -> None:
    """XOR the delta that stands there onto a block, in place. Raises Corrupt."""
    count = int.from_bytes(memoryview(deltas)[at : at + _HEAD], "little")
    at += _HEAD
    if count > block.size or at + count * _EACH > len(deltas):
        raise Corrupt("a delta is cut short")
    gaps = np.frombuffer(deltas, "<u2", count, at)
    where = np.cumsum(gaps, dtype=np.int64)
    if count and where[-1] >= block.size:
        raise Corrupt("a delta points outside of its block")
    planes = np.frombuffer(deltas, np.uint8, count * _WORD, at + 2 * count)
    words = np.ascontiguousarray(planes.reshape(_WORD, count).T).view("<u8").reshape(-1)
    if count > 1 and not gaps[1:].all():
        raise Corrupt("a delta says two things about one word")
    block[where] ^= words
