"""Content-defined cutting: a cut depends on the bytes around it, not on their position, so that
an insertion moves the following pieces without changing them.

A rolling polynomial hash over 32 bytes is computed for all positions at once with numpy. As in
FastCDC a cut is hard to get before the wanted size and easy after it; pieces have 16 to 64 KiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.arrays import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MIN_PIECE = 16 * 1024
WANTED_PIECE = 32 * 1024
MAX_PIECE = 64 * 1024
_WINDOW = 32
_STRIPE = 64 * 1024  # positions hashed at a time, so that the arrays stay in the cache
_FACTOR = 0x9E3779B1  # odd; powers of it weigh the bytes of the window
_MIX = 0x85EBCA6B
_HARD = 1 << (32 - 16)  # a hash below this cuts anywhere: once in 64 KiB
_EASY = 1 << (32 - 13)  # below this, past the wanted size: once in 8 KiB


def cut(data: memoryview, final: bool) -> list[int]:
    """Ends of the pieces of `data`. Unless `final`, what may continue is left uncut."""
    hard, easy = _candidates(np.frombuffer(data, dtype=np.uint8))
    ends: list[int] = []
    start = 0
    total = len(data)
    while total - start > MAX_PIECE or (final and start < total):
        end = _end(hard, easy, start, total)
        ends.append(end)
        start = end
    return ends


def _end(hard: NDArray[np.intp], easy: NDArray[np.intp], start: int, total: int) -> int:
    low, middle = start + MIN_PIECE, start + WANTED_PIECE
    high = min(start + MAX_PIECE, total)
    if total <= low:
        return total
    at = int(np.searchsorted(hard, low))
    if at < len(hard) and hard[at] < min(middle, high):
        return int(hard[at])
    at = int(np.searchsorted(easy, middle))
    if at < len(easy) and easy[at] < high:
        return int(easy[at])
    return high


def _candidates(data: NDArray[np.uint8]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions behind which a cut may be made: always, or only past the wanted size."""
    hard: list[NDArray[np.intp]] = [np.empty(0, dtype=np.intp)]
    easy: list[NDArray[np.intp]] = [np.empty(0, dtype=np.intp)]
    for start in range(0, len(data), _STRIPE):
        lead = min(start, _WINDOW)
        hashes = _hashes(data[start - lead : start + _STRIPE])[lead:]
        found = np.flatnonzero(hashes < _EASY)
        easy.append(found + (start + 1))
        hard.append(found[hashes[found] < _HARD] + (start + 1))
    return np.concatenate(hard), np.concatenate(easy)


def _hashes(data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """For each position a hash of the 32 bytes that end there, by doubling the window."""
    # Squaring first keeps runs of equal bytes from giving equal low bits.
    values = data.astype(np.uint32)
    values += np.uint32(1)
    values *= values
    width, factor = 1, _FACTOR
    while width < _WINDOW:
        shifted = values[:-width] * np.uint32(factor)
        values[width:] += shifted
        width, factor = width * 2, factor * factor & 0xFFFFFFFF
    values ^= values >> np.uint32(15)
    values *= np.uint32(_MIX)
    return values
