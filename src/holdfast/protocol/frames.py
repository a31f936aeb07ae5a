"""Frames: a 4-byte length and that many bytes. Nothing here touches a socket."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.model.errors import Corrupt

HEADER = 4
# One frame is held in memory as a whole; a hostile length must not decide how much that is.
MAX_FRAME = 64 << 20
# Longer data is cut into pieces of this size, well below the limit.
PIECE = 1 << 20


def encode_frame(payload: bytes) -> bytes:
    """The payload with its length in front; raises Corrupt when it is too long."""
    if len(payload) > MAX_FRAME:
        raise Corrupt(f"a frame of {len(payload)} bytes is longer than {MAX_FRAME}")
    return len(payload).to_bytes(HEADER, "big") + payload


def pieces(data: bytes | memoryview) -> Iterator[tuple[memoryview, bool]]:
    """Cut data for frames: (piece, is it the last). Empty data is one empty piece."""
    view = memoryview(data)
    for start in range(0, max(len(view), 1), PIECE):
        yield view[start : start + PIECE], start + PIECE >= len(view)


class FrameDecoder:
    """Collects bytes as they come and gives back whole payloads."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self._max_frame = max_frame

    def feed(self, data: bytes | memoryview) -> list[bytes]:
        """Every payload that is complete now. Raises Corrupt on a length beyond the limit."""
        self._buffer += data
        payloads: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= HEADER:
            length = int.from_bytes(self._buffer[start : start + HEADER], "big")
            if length > self._max_frame:
                raise Corrupt(f"a frame claims {length} bytes, more than {self._max_frame}")
            end = start + HEADER + length
            if len(self._buffer) < end:
                break
            payloads.append(bytes(memoryview(self._buffer)[start + HEADER : end]))
            start = end
        if start:
            del self._buffer[:start]
        return payloads

    @property
    def pending(self) -> int:
        """Bytes of a frame that has not arrived as a whole."""
        return len(self._buffer)
