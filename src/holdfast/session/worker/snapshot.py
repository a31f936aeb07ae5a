"""Capturing in a copy of the process: the session waits only until the copy is made.

The copy runs nothing but the capture, without the session's streams, under a deadline, and
never returns. Only a process without other threads can be copied, and the copy is worth its
time only when the capture takes long.
"""

from __future__ import annotations

import gc
import mmap
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from holdfast.protocol.frames import pieces
from holdfast.protocol.session_messages import (
    CheckpointCreatedMessage,
    CheckpointMessage,
    ErrorMessage,
    Message,
    PartMessage,
    frame,
)
from holdfast.session import layout
from holdfast.session.worker import budget
from holdfast.session.worker.labels import Labels, LabelState
from holdfast.session.worker.reasons import reason_of

if TYPE_CHECKING:  # with cloudpickle: 10 ms
    from holdfast.session.worker.capture import Capture

LONG = 0.05  # seconds: a shorter capture is not worth a copy
LARGE = 128 << 20  # bytes of memory: the first capture of such a process is made in a copy
MOST = 2  # copies at once; each may come to need as much memory as the session

_GRACE = 5.0  # seconds


class _Learnt(msgspec.Struct, array_like=True):
    """What a copy tells the session afterwards."""

    seconds: float
    labels: LabelState


class Snapshots:
    """Decides where a capture happens, and knows what the last one was like."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._seconds: float | None = None  # that the last capture took
        self._children: list[int] = []
        self._notes = -1  # the file where the last copy leaves what it learnt

    def took(self, seconds: float) -> None:
        """The last capture was made in place."""
        self._seconds = seconds

    def wanted(self) -> bool:
        """Whether the next capture should happen in a copy."""
        self._learn()
        self._children = [child for child in self._children if not _has_ended(child)]
        long = _is_large() if self._seconds is None else self._seconds >= LONG
        if not long or threading.active_count() > 1 or len(self._children) >= MOST:
            return False
        torch = sys.modules.get("torch")
        return not (torch is not None and torch.cuda.is_initialized())  # a GPU is not copied

    def begin(
        self, capture: Capture, environment: layout.Environment, asked: CheckpointMessage
    ) -> int:
        """Make the copy; what can be read from this file are the messages of the capture."""
        self._forget()
        read, write = os.pipe()
        self._notes = os.memfd_create("holdfast-notes", os.MFD_CLOEXEC)
        child = os.fork()
        if child == 0:
            os.close(read)  # or it would wait for ever for a host that has gone
            _work(capture, environment, asked, write, self._notes, self._labels)
        os.close(write)
        self._children.append(child)
        self._labels.back()
        return read

    @property
    def newest(self) -> int:
        """The process id of the copy that was made last."""
        return self._children[-1]

    def _learn(self) -> None:
        """Take what the last copy left, if it has come so far."""
        if self._notes < 0:
            return
        data = os.pread(self._notes, os.fstat(self._notes).st_size, 0)
        try:
            learnt = msgspec.msgpack.decode(data, type=_Learnt)
        except msgspec.MsgspecError:
            return  # not yet
        self._forget()
        self._seconds = learnt.seconds
        self._labels.take(learnt.labels)

    def restored(self) -> None:
        """What the last copy knew is about a namespace that is no more."""
        self._forget()

    def _forget(self) -> None:
        if self._notes >= 0:
            os.close(self._notes)
            self._notes = -1


def _is_large() -> bool:
    """Whether a first capture is likely to take long, by the memory that the process has."""
    pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    return pages * mmap.PAGESIZE > LARGE


def _has_ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True  # the user's code waited for it


def _work(
    capture: Capture,
    environment: layout.Environment,
    asked: CheckpointMessage,
    write: int,
    notes: int,
    labels: Labels,
) -> NoReturn:
    """All that the copy does."""
    try:
        gc.disable()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        # The host gives up first, and says so; this only ends what nobody waits for.
        signal.setitimer(signal.ITIMER_REAL, asked.timeout + _GRACE if asked.timeout else 0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        _capture(capture, environment, asked.request_id, write, notes, labels)
    finally:
        os._exit(0)


def _capture(
    capture: Capture,
    environment: layout.Environment,
    request_id: int,
    write: int,
    notes: int,
    labels: Labels,
) -> None:
    started, me = time.perf_counter(), os.getpid()
    try:
        captured = capture.run(environment, apart=True)
    except BaseException as error:  # noqa: BLE001  # user code; the host is told
        kind, reason = type(error).__name__, reason_of(error)
        message = ErrorMessage(request_id=request_id, error_type=kind, message=reason)
        _send(write, budget.explained(message, error))
        return
    if os.getpid() != me:
        return  # user code forked while it was captured: one of them is enough
    # Before the last message: the next capture may be asked for as soon as that has arrived.
    learnt = _Learnt(time.perf_counter() - started, labels.state())
    os.write(notes, msgspec.msgpack.encode(learnt))
    for name, data in captured.parts.items():
        for piece, last in pieces(data):
            part = PartMessage(request_id=request_id, name=name, data=bytes(piece), last=last)
            _send(write, part)
    created = CheckpointCreatedMessage(
        request_id=request_id,
        size_bytes=sum(map(len, captured.parts.values())),
        serialization_method=captured.serialization_method,
        items=captured.items,
    )
    _send(write, created)


def _send(write: int, message: Message) -> None:
    data = memoryview(frame(message))
    while data:
        data = data[os.write(write, data) :]
