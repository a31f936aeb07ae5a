"""The worker's loop: read a message, do it, answer. Started by `holdfast.session.workers`, through
`boot`, or as a fork of a template."""

from __future__ import annotations

import _socket
import ctypes
import gc
import importlib
import os
import platform
import sys
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.blas import resting
from holdfast.protocol.session_messages import (
    CheckpointMessage,
    CompletedMessage,
    CompleteMessage,
    ExecuteMessage,
    HostMessage,
    ImportMessage,
    InspectedMessage,
    InspectMessage,
    Message,
    ReadyMessage,
    RestoredMessage,
    RestoreMessage,
    ResultMessage,
    ShutdownMessage,
)
from holdfast.session.worker.boot import Uncollected, Unshadowed
from holdfast.session.worker.channel import Channel
from holdfast.session.worker.console import Console
from holdfast.session.worker.finder import Finder
from holdfast.session.worker.interrupts import Interrupted, Interrupts
from holdfast.session.worker.labels import Labels
from holdfast.session.worker.memory.overlay import Overlay
from holdfast.session.worker.memory.tracker import Tracker
from holdfast.session.worker.parent import end_with
from holdfast.session.worker.runner import describe, flush
from holdfast.session.worker.workspace import Workspace

if TYPE_CHECKING:  # with all that a capture needs
    from holdfast.session.worker.freezer import Freezer

_IDLE = 0.2  # seconds without a message
_getpid, _exit = os.getpid, os._exit  # bound here: a session may put something else in their place


class Worker:
    """A workspace and what serves it."""

    def __init__(self, workspace: Workspace, control: _socket.socket, page_fd: int) -> None:
        self._workspace = workspace
        self._namespace = workspace.namespace
        self._cells, self._codes = workspace.cells, workspace.codes
        self._definitions, self._runner = workspace.definitions, workspace.runner
        self._interrupts = Interrupts(page_fd)
        self._channel = Channel(control, self._interrupts)
        self._console = Console(self._channel, workspace.originals)
        self._labels = Labels()
        self._tracker = Tracker()
        self._freezer: Freezer | None = None  # when there has been something to freeze
        self._libc = ctypes.CDLL(None)
        self._pid = os.getpid()
        self._littered = False  # by a namespace that another has replaced
        # There is one worker per socket: a fork of it has nothing to say to the host.
        os.register_at_fork(after_in_child=self._channel.close)

    def serve(self) -> None:
        """Answer messages until the host is gone or says so."""
        self._interrupts.install()
        self._console.install()
        self._channel.send(ReadyMessage(pid=os.getpid(), python=platform.python_version()))
        own = self._workspace.originals.worker
        while True:
            if self._littered and not self._channel.wait(_IDLE):
                self._collect()
            self._channel.wait()
            with own:
                if not self._answer(self._channel.receive()):
                    return

    def _answer(self, message: HostMessage | None) -> bool:
        """Do what a message asks for; False when there is nothing more to do."""
        match message:
            case ExecuteMessage():
                self._execute(message)
            case CheckpointMessage():
                with self._workspace.at_work():
                    self._checkpoint(message)
            case RestoreMessage():
                with self._workspace.at_work():
                    self._restore(message)
            case CompleteMessage() | InspectMessage():
                with self._workspace.at_work():
                    self._look(message)
            case ImportMessage():
                _import(message.modules)
            case None | ShutdownMessage():
                return False
        return True  # else it is an answer to a question whose cell was interrupted

    def _execute(self, message: ExecuteMessage) -> None:
        self._console.execution_id = message.execution_id
        before = self._runner.count
        try:
            with self._interrupts.running(message.execution_id):
                result = self._runner.run(
                    message.execution_id,
                    message.code,
                    message.memory_limit,
                    self._interrupts.begin,
                )
        except KeyboardInterrupt as error:  # at the edge of the cell, where nothing of it takes it
            self._runner.count = before + 1  # it may not have come to counting
            result = ResultMessage(
                execution_id=message.execution_id,
                execution_count=self._runner.count,
                duration=0.0,
                error=describe(error.with_traceback(None), self._cells),
            )
        finally:
            self._console.execution_id = 0
        flush()
        self._libc.fflush(None)  # what C code printed belongs to this cell
        self._end_if_forked()
        self._channel.send(result)

    def _checkpoint(self, message: CheckpointMessage) -> None:
        try:
            if self._freezer is None:  # with all that only a capture needs: 15 ms
                with Unshadowed():
                    from holdfast.session.worker.freezer import Freezer

                self._freezer = Freezer(
                    self._workspace, self._labels, self._tracker, self._interrupts,
                    self._channel.send,
                )  # fmt: skip
            answers = self._freezer.freeze(message)
        except BaseException as error:  # noqa: BLE001  # reported; the session goes on as it was
            self._fail(message.request_id, error)
            return
        self._end_if_forked()
        for answer, file in answers:
            self._channel.send(answer, file)
            if file is not None:
                os.close(file)

    def _restore(self, message: RestoreMessage) -> None:
        received = self._channel.receive_parts(message.parts)
        if received is None:
            return
        self._collect()  # if nobody left time for it: all that restores replaced would pile up
        full = any(not name.startswith("__") for name in self._namespace)
        files = [self._channel.files.popleft() for _ in range(message.files)]
        overlay = Overlay(received[1], files, self._tracker.placed)
        # Should it fail, the host's next capture is still based on what it has now.
        self._tracker.begin(message.request_id, max(self._tracker.base, 0))
        self._tracker.maps(files)
        try:
            within = self._interrupts.working(message.request_id)
            items = self._workspace.restore(
                received[0],
                {**message.secrets, **message.binary_secrets},
                self._labels,
                within,
                overlay,
            )
        except BaseException as error:  # noqa: BLE001  # reported; the session goes on as it was
            self._fail(message.request_id, error)
            return
        finally:
            for file in files:
                os.close(file)
        self._end_if_forked()
        self._littered = full
        if self._freezer is not None:
            self._freezer.restored()
        self._channel.send(RestoredMessage(request_id=message.request_id, items=items))

    def _collect(self) -> None:
        """What a restore has replaced is often in cycles, such as frames are, and so old that the
        collector would not come to it before long."""
        if self._littered and gc.isenabled():
            gc.collect()
        self._littered = False

    def _look(self, message: CompleteMessage | InspectMessage) -> None:
        from holdfast.session.worker import inspection

        request = message.request_id
        try:
            with self._interrupts.working(request):
                answer: Message
                if isinstance(message, CompleteMessage):
                    matches = inspection.completions(self._namespace, message.text)
                    answer = CompletedMessage(request_id=request, matches=matches)
                else:
                    found = inspection.variables(self._namespace)
                    answer = InspectedMessage(request_id=request, variables=found)
        except BaseException as error:  # noqa: BLE001  # reported; nothing was changed
            self._fail(request, error)
            return
        self._end_if_forked()
        self._channel.send(answer)

    def _fail(self, request_id: int, error: BaseException) -> None:
        from holdfast.session.worker import budget  # what was captured, and was too much

        self._end_if_forked()
        described = budget.explained(describe(error, self._cells), error)
        kind = "KeyboardInterrupt" if isinstance(error, Interrupted) else described.error_type
        self._channel.send(
            msgspec.structs.replace(described, error_type=kind, request_id=request_id)
        )

    def _end_if_forked(self) -> None:
        """A child that the user's code forked ends where that code does."""
        if _getpid() != self._pid:
            _exit(0)


def _import(modules: tuple[str, ...]) -> None:
    """Load what a restore, which is on its way, will need."""
    with Uncollected(), Finder(), resting():
        with Unshadowed():
            from holdfast.session.worker import pieces, restore  # noqa: F401  # its own part

        try:
            for module in modules:
                importlib.import_module(module)
        except BaseException:  # noqa: BLE001  # the restore finds that out again, and says so
            return


def main(arguments: list[str]) -> None:
    """Run a worker: the control socket, the interrupt page, and the host's process id."""
    control_fd, page_fd, parent = map(int, arguments)
    for fd in (control_fd, page_fd):
        os.set_inheritable(fd, False)
    if not end_with(parent):
        return
    sys.argv = [""]
    workspace = Workspace()
    workspace.install()
    Worker(workspace, _socket.socket(fileno=control_fd), page_fd).serve()
