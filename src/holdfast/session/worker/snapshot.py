"""Capturing in a copy of the process: the session waits only until the copy is made.

The copy runs nothing but the capture, without the session's streams, under a deadline, and
never returns. Only a process without other threads can be copied, and the copy is worth its
time only when the capture takes long.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
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
from holdfast.session.worker.labels import Labels, LabelState
from holdfast.session.worker.reasons import reason_of

if TYPE_CHECKING:  # with cloudpickle: 10 ms
    from holdfast.session.worker.capture import Capture

LONG = 0.05  # seconds: a shorter capture is not worth a copy

_GRACE = 5.0  # seconds


class _Learnt(msgspec.Struct, array_like=True):
    """What a copy tells the session afterwards."""

    seconds: float
    labels: LabelState


class Snapshots:
    """Decides where a capture happens, and knows what the last one was like."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._seconds = 0.0  # that the last capture took
        self._child = 0
        self._notes = -1

    def took(self, seconds: float) -> None:
        """The last capture was made in place."""
        self._seconds = seconds

    def wanted(self) -> bool:
        """Whether the next capture should happen in a copy."""
        self._learn()
        if self._seconds < LONG or threading.active_count() > 1 or self._child:
            return False
        torch = sys.modules.get("torch")
        return not (torch is not None and torch.cuda.is_initialized())  # a GPU is not copied

    def begin(
        self, capture: Capture, environment: layout.Environment, asked: CheckpointMessage
    ) -> int:
        """Make the copy; what it reads from this file are the messages of the capture."""
        read, write = os.pipe()
        self._notes = os.memfd_create("holdfast-notes", os.MFD_CLOEXEC)
        self._child = os.fork()
        if self._child == 0:
            _work(capture, environment, asked, write, self._notes, self._labels)
        os.close(write)
        return read

    def _learn(self) -> None:
        """Take what the last copy left, if it has ended."""
        if not self._child:
            return
        try:
            ended, _ = os.waitpid(self._child, os.WNOHANG)
        except ChildProcessError:
            ended = self._child  # the user's code waited for it
        if not ended:
            return
        self._child = 0
        data = os.pread(self._notes, os.fstat(self._notes).st_size, 0)
        os.close(self._notes)
        try:
            learnt = msgspec.msgpack.decode(data, type=_Learnt)
        except msgspec.MsgspecError:
            return  # it was cut short: labels begin anew, and the next one is made in a copy again
        self._seconds = learnt.seconds
        self._labels.take(learnt.labels)


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
        started = time.perf_counter()
        _capture(capture, environment, asked.request_id, write)
        learnt = _Learnt(time.perf_counter() - started, labels.state())
        os.write(notes, msgspec.msgpack.encode(learnt))
    finally:
        os._exit(0)


def _capture(
    capture: Capture, environment: layout.Environment, request_id: int, write: int
) -> None:
    try:
        captured = capture.run(environment, apart=True)
    except BaseException as error:  # noqa: BLE001  # user code; the host is told
        _send(write, ErrorMessage(
            request_id=request_id, error_type=type(error).__name__, message=reason_of(error)
        ))  # fmt: skip
        return
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
