"""A template: a process that has run the warm-up, and is forked for each worker.

It has no thread of its own and serves no session. A fork goes on as a worker that has never been
anything else; it ends with the template, as the template ends with its host.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import random
import select
import signal
import socket
import sys
import threading
from typing import NamedTuple

from holdfast.protocol.frames import FrameDecoder
from holdfast.protocol.session_messages import (
    ErrorMessage,
    ExitedMessage,
    ForkedMessage,
    ForkMessage,
    Message,
    WarmedMessage,
    WarmMessage,
    decode_template_request,
    frame,
)
from holdfast.session.worker.forks import end_teams
from holdfast.session.worker.main import Worker
from holdfast.session.worker.parent import end_with
from holdfast.session.worker.workspace import Workspace

WARM_UP = 0  # the number of its cell
# What a worker would otherwise load with its first checkpoint.
_AHEAD = (
    "asyncio",
    "holdfast.session.worker.capture",
    "holdfast.session.worker.pieces",
    "holdfast.session.worker.restore",
)


class Born(NamedTuple):
    """What a fork was given to live on."""

    control: int
    page: int
    stdout: int
    stderr: int


class Template:
    """Serves the host's requests, until it is itself the fork that was asked for."""

    def __init__(self, control: socket.socket, workspace: Workspace) -> None:
        self._control = control
        self._workspace = workspace
        self._decoder = FrameDecoder()
        self._files: list[int] = []
        self._children: dict[int, int] = {}  # a pidfd and whose it is
        # The same on a kernel without pidfds (gVisor's): by process, the end of a pipe that is
        # closed when the process has ended, and what a signal wakes the poll with.
        self._endings: dict[int, int] = {}
        self._wake: tuple[int, int] | None = None
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> Born | None:
        """Returns in a fork, with what it was given; in the template, when the host is gone."""
        while True:
            for fd, _ in self._poll.poll():
                if self._wake is not None and fd == self._wake[0]:
                    os.read(fd, 1 << 10)
                    self._bury_ended()
                    continue
                if fd != self._control.fileno():
                    self._bury(fd)
                    continue
                data, files, _, _ = socket.recv_fds(self._control, 1 << 16, 16)
                self._files += files
                if not data:
                    return None
                for payload in self._decoder.feed(data):
                    match decode_template_request(payload):
                        case WarmMessage(code=code):
                            self._send(WarmedMessage(error=self._warm(code)))
                        case ForkMessage(request_id=request):
                            born = self._fork(request)
                            if born is not None:
                                return born
                        case _:
                            return None

    def _warm(self, code: str) -> ErrorMessage | None:
        for name in _AHEAD:
            importlib.import_module(name)
        runner = self._workspace.runner
        runner.count = WARM_UP - 1
        result = runner.run(0, code)
        if result.error is not None:
            return result.error
        threads = [thread.name for thread in threading.enumerate()][1:]
        if threads:
            # A fork has only the thread that forked it; the others' locks would stay locked.
            text = f"it left threads running, which no fork would have: {', '.join(threads)}"
            return ErrorMessage(error_type="RuntimeError", message=text)
        # What is there now is not looked at again, so its pages stay shared with the forks.
        gc.collect()
        gc.freeze()
        return None

    def _fork(self, request: int) -> Born | None:
        born = Born(*self._files[:4])
        del self._files[:4]
        template = os.getpid()
        end_teams()  # of a warm-up that computed: a fork would wait for them
        pid = os.fork()
        if pid == 0:
            self._leave()
            if not end_with(template):
                os._exit(0)
            return born
        for fd in born:
            os.close(fd)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            self._listen()
            ended, self._endings[pid] = os.pipe()
            self._send(ForkedMessage(request_id=request, pid=pid), [ended])
            os.close(ended)
            self._bury_ended()  # it may have ended before it was known
            return None
        self._children[pidfd] = pid
        self._poll.register(pidfd, select.POLLIN)
        self._send(ForkedMessage(request_id=request, pid=pid), [pidfd])
        return None

    def _listen(self) -> None:
        """On a kernel without pidfds, be woken by the signal that a child has ended."""
        if self._wake is None:
            self._wake = os.pipe()
            for fd in self._wake:
                os.set_blocking(fd, False)
            self._poll.register(self._wake[0], select.POLLIN)
            signal.signal(signal.SIGCHLD, lambda number, frame: None)
            signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)

    def _leave(self) -> None:
        """In a fork: nothing of the template's is a worker's business."""
        os.setsid()
        if self._wake is not None:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in (*self._children, *self._endings.values(), *(self._wake or ()), *self._files):
            os.close(fd)
        self._control.close()

    def _bury(self, pidfd: int) -> None:
        pid = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._send(ExitedMessage(pid=pid, code=os.waitstatus_to_exitcode(status)))

    def _bury_ended(self) -> None:
        for pid in list(self._endings):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._send(ExitedMessage(pid=pid, code=os.waitstatus_to_exitcode(status)))
                os.close(self._endings.pop(pid))

    def _send(self, message: Message, files: list[int] | None = None) -> None:
        data = frame(message)
        sent = socket.send_fds(self._control, [data], files) if files else 0
        self._control.sendall(data[sent:])


def reseed() -> None:
    """Forks must not draw the same numbers. (`random` does this by itself, before it is asked.)"""
    random.seed()
    for name in ("numpy.random", "torch"):
        module = sys.modules.get(name)
        if module is not None:
            module.seed()  # from the system's own source of randomness


def main(arguments: list[str]) -> None:
    """Run a template: its control socket, and the host's process id."""
    control_fd, parent = map(int, arguments)
    os.set_inheritable(control_fd, False)
    if not end_with(parent):
        return
    sys.argv = [""]
    workspace = Workspace()
    workspace.install()
    born = Template(socket.socket(fileno=control_fd), workspace).serve()
    if born is None:
        return
    for given, number in ((born.stdout, 1), (born.stderr, 2)):
        os.dup2(given, number)
        os.close(given)
    reseed()
    Worker(workspace, socket.socket(fileno=born.control), born.page).serve()
