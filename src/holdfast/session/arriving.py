"""A capture that a copy of the worker makes, beside the session that goes on: read in a thread."""

from __future__ import annotations

import os
import select
import time

import msgspec

from holdfast.model.errors import CaptureFailed, Corrupt
from holdfast.protocol.frames import FrameDecoder
from holdfast.protocol.session_messages import (
    CapturingMessage,
    CheckpointCreatedMessage,
    ErrorMessage,
    PartMessage,
    decode_worker,
)
from holdfast.session.work import Captured

_READ = 1 << 20


class Arriving:
    """The messages of a capture, on their way through a pipe that is ours to close."""

    def __init__(self, file: int, begun: CapturingMessage, timeout: float | None) -> None:
        self._file = file
        self._begun = begun
        self._timeout = timeout
        self._ends = None if timeout is None else time.monotonic() + timeout
        self._parts: dict[str, bytearray] = {}

    def all(self) -> Captured:
        """Wait for all of it. Raises CaptureFailed."""
        decoder = FrameDecoder()
        try:
            while True:
                data = self._read()
                if not data:
                    raise CaptureFailed("the copy of the worker ended before its capture did")
                for payload in decoder.feed(data):
                    created = self._take(payload)
                    if created is not None:
                        return created
        except Corrupt as error:
            raise CaptureFailed(f"the copy of the worker broke the protocol: {error}") from None
        finally:
            self.close()

    def close(self) -> None:
        """Nobody wants it any more: the copy ends at its next write."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _take(self, payload: bytes) -> Captured | None:
        match decode_worker(payload):
            case PartMessage() as part:
                self._parts.setdefault(part.name, bytearray()).extend(part.data)
            case ErrorMessage() as error:
                raise CaptureFailed(f"{error.error_type}: {error.message}")
            case CheckpointCreatedMessage() as created:
                made = msgspec.structs.replace(created, pause_ms=self._begun.pause_ms)
                return Captured({name: bytes(data) for name, data in self._parts.items()}, made)
        return None

    def _read(self) -> bytes:
        left = None if self._ends is None else max(0.0, self._ends - time.monotonic())
        if not select.select([self._file], [], [], left)[0]:
            raise CaptureFailed(f"the capture took longer than {self._timeout:g} s")
        return os.read(self._file, _READ)
