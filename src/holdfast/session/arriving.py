"""Captures that the session does not wait for: made already and left in a file, or still being
made by a copy of the worker. They are read in a thread."""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast.model.errors import CaptureFailed, Corrupt
from holdfast.model.readiness import readable
from holdfast.protocol.frames import FrameDecoder
from holdfast.protocol.session_messages import CapturingMessage, decode_worker
from holdfast.session.captured import HEAVY, Captured, Gathering, StoodStill, handed_over
from holdfast.session.memory import Distant

_READ = 1 << 20
PATIENCE = 5.0  # seconds in which a copy that works does something
_LOOK = 0.5  # seconds from one look at it to the next


class Left:
    """A capture that is complete, in a file, which is ours to close."""

    open = False  # nothing is under way
    long = heavy = False  # a worker leaves only little in a file

    def __init__(self, file: int, told: CapturingMessage) -> None:
        self._file = file
        self._told = told
        self._distant = Distant(file, told.start + told.size)

    def all(self) -> Captured:
        """All of it, with the file until it is released. Raises CaptureFailed."""
        at, end = self._told.start, self._told.start + self._told.size

        def read() -> bytes:
            nonlocal at
            data = os.pread(self._file, min(_READ, end - at), at)
            at += len(data)
            return data

        try:
            captured = _gathered(read, Gathering(self._distant))
        except OSError as error:
            self.close()
            raise CaptureFailed(f"the worker's capture cannot be read: {error}") from None
        except BaseException:
            self.close()
            raise
        return handed_over(captured, self._told.pause_ms, self.close)

    def stop(self, why: str) -> None:
        """It is complete: there is nothing to stop."""

    def close(self) -> None:
        self._distant.close()


class Arriving:
    """The messages of a capture on their way through a pipe; it is ours to close."""

    long = True  # or it would not be made by a copy

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
        self._activity = _Activity(begun.pid)
        # Only of a process that is what it says to be.
        self._distant = _memory(begun.pid) if self._copy >= 0 else None
        self.heavy = _resident(begun.pid) > HEAVY

    def all(self) -> Captured:
        """Wait for all of it. Raises CaptureFailed, and StoodStill after some seconds in which the
        copy did nothing at all. The copy lives until it is released."""
        try:
            captured = _gathered(self._read, Gathering(self._distant))
        except BaseException:
            self.close()
            raise
        return handed_over(captured, self._begun.pause_ms, self.close)

    @property
    def open(self) -> bool:
        """Whether the capture is under way."""
        return self._file >= 0

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

    def _read(self) -> bytes:
        self._activity.seen()
        while not readable((self._file, self._wake), self._wait()):
            if self._ends is not None and time.monotonic() >= self._ends:
                raise CaptureFailed(f"the capture took longer than {self._timeout:g} s")
            if self._activity.idle() > PATIENCE:
                raise StoodStill("the copy that makes the capture stands still")
        if self._stopped:
            raise CaptureFailed(self._stopped)
        return os.read(self._file, _READ)

    def _wait(self) -> float:
        return _LOOK if self._ends is None else max(0.0, min(_LOOK, self._ends - time.monotonic()))


class _Activity:
    """Whether a process does something: computes, waits for a disk, or waits for a child."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ticks = -1
        self._since = time.monotonic()

    def seen(self) -> None:
        """It has done something."""
        self._since = time.monotonic()

    def idle(self) -> float:
        """For how many seconds it has done nothing; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
            children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text()
        except OSError:
            return 0.0
        ticks = int(fields[11]) + int(fields[12])
        if fields[0] != "S" or children.strip() or ticks != self._ticks:
            self.seen()
        self._ticks = ticks
        return time.monotonic() - self._since


def _gathered(read: Callable[[], bytes], gathering: Gathering) -> Captured:
    """A capture of what can be read. Raises CaptureFailed."""
    decoder = FrameDecoder()
    try:
        while data := read():
            for payload in decoder.feed(data):
                captured = gathering.take(decode_worker(payload))
                if captured is not None:
                    return captured
    except Corrupt as error:
        raise CaptureFailed(f"the worker broke the protocol: {error}") from None
    raise CaptureFailed("the copy of the worker ended before its capture did")


def _memory(pid: int) -> Distant | None:
    """The copy's memory, where the kernel lets us read it."""
    try:
        return Distant.memory_of(pid)
    except OSError:
        return None


def _resident(pid: int) -> int:
    """Bytes that a process has in memory; 0 for one that has gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0


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


Coming = Captured | Left | Arriving  # a capture, wherever it is
