"""A capture that the session does not wait for: made already and left in a file, or still being
made by a copy of the worker. It is read in a thread."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.model.errors import CaptureFailed, Corrupt
from holdfast.protocol.frames import FrameDecoder
from holdfast.protocol.session_messages import (
    CapturingMessage,
    CheckpointCreatedMessage,
    ErrorMessage,
    MemoryMessage,
    PartMessage,
    decode_worker,
)
from holdfast.session.memory import Distant, Memories
from holdfast.session.work import Captured

_READ = 1 << 20


class Arriving:
    """The messages of a capture, in a file or on their way through a pipe; it is ours to close."""

    def __init__(
        self, file: int, begun: CapturingMessage, timeout: float | None, worker: int
    ) -> None:
        self._file = file
        self._begun = begun
        self._copy = _child(begun.pid, worker)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()  # of the files: one thread reads, another may stop it
        self._stopped = ""
        self._timeout = timeout
        self._ends = None if timeout is None else time.monotonic() + timeout
        self._parts: dict[str, bytearray] = {}
        self._memory = Memories()
        # Only of a process that is what it says to be.
        self._distant = _memory(begun.pid) if self._copy >= 0 else None

    def all(self) -> Captured:
        """Wait for all of it. Raises CaptureFailed. The copy lives until it is released."""
        decoder = FrameDecoder()
        complete = False
        try:
            while True:
                data = self._read()
                if not data:
                    raise CaptureFailed("the copy of the worker ended before its capture did")
                for payload in decoder.feed(data):
                    created = self._take(payload)
                    if created is not None:
                        complete = True
                        return created
        except Corrupt as error:
            raise CaptureFailed(f"the copy of the worker broke the protocol: {error}") from None
        finally:
            if not complete:
                self.close()

    @property
    def open(self) -> bool:
        """Whether the capture is under way, in a copy of the worker. Without one it is complete."""
        return self._file >= 0 and self._begun.pid > 0

    def stop(self, why: str) -> None:
        """Nobody wants it any more: whoever waits gets CaptureFailed, and the copy ends."""
        with self._lock:
            if self.open:
                self._stopped = why
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """It is over, one way or another; a copy that is not at its end has nothing to tell."""
        with self._lock:
            for fd in (self._file, self._wake):
                if fd >= 0:
                    os.close(fd)
            self._file = self._wake = -1
            if self._distant is not None:
                self._distant.close()
            if self._copy >= 0:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._copy, signal.SIGKILL)
                os.close(self._copy)
                self._copy = -1

    def _take(self, payload: bytes) -> Captured | None:
        match decode_worker(payload):
            case PartMessage() as part:
                self._parts.setdefault(part.name, bytearray()).extend(part.data)
            case ErrorMessage() as error:
                why = f"{error.error_type}: {error.message}"
                raise CaptureFailed(why, hint=error.hint or None)
            case CheckpointCreatedMessage() as created:
                made = msgspec.structs.replace(created, pause_ms=self._begun.pause_ms)
                parts = {name: bytes(data) for name, data in self._parts.items()}
                return Captured(parts, self._memory, made, self.close)
            case MemoryMessage() as told:
                self._memory.take(told, self._distant)
        return None

    def _read(self) -> bytes:
        left = None if self._ends is None else max(0.0, self._ends - time.monotonic())
        if not select.select([self._file, self._wake], [], [], left)[0]:
            raise CaptureFailed(f"the capture took longer than {self._timeout:g} s")
        if self._stopped:
            raise CaptureFailed(self._stopped)
        return os.read(self._file, _READ)


def _memory(pid: int) -> Distant | None:
    """The copy's memory, where the kernel lets us read it."""
    found = Distant(pid)
    try:
        found.open()
    except OSError:
        return None
    return found


def _child(pid: int, worker: int) -> int:
    """A pidfd, if that process is the worker's child as it says; else -1, and nobody is killed."""
    try:
        pidfd = os.pidfd_open(pid)
    except (OSError, ValueError):
        return -1
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        parent = -1
    if parent != worker:
        os.close(pidfd)
        return -1
    return pidfd
