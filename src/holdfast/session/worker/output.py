"""A pickle as it grows: frames, and large payloads as the objects that they are."""

from __future__ import annotations

from typing import Any

from holdfast.session.worker.innocent import Innocent


class TooLarge(Exception):
    """The item is larger than the limit for one item."""


class Output:
    """Takes a pickle as it grows: frames, and large payloads as the objects that they are."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._size = 0
        self._pieces: list[bytes] = []
        # An array's memory is not text; looking for secrets in gigabytes of it takes seconds.
        self.raw: dict[int, bytes] = {}
        self.alarming = False  # whether the pickler itself has seen what may be a secret

    def write(self, data: Any, /) -> int:
        size = len(data) if type(data) is bytes else memoryview(data).nbytes
        self.grow(size)
        self._pieces.append(data if type(data) is bytes else bytes(data))
        return size

    def grow(self, size: int) -> None:
        """Count bytes before they are copied. Raises TooLarge."""
        self.check(self._size + size)
        self._size += size

    def check(self, size: int) -> None:
        if self.limit is not None and size > self.limit:
            raise TooLarge(f"larger than the limit of {self.limit} bytes for one item")

    def data(self) -> bytes:
        return b"".join(self._pieces)

    def suspect(self, innocent: Innocent) -> bool:
        """Whether there may be a secret in it."""
        return self.alarming or any(
            innocent.suspect(piece) for piece in self._pieces if id(piece) not in self.raw
        )
