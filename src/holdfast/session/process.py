"""A worker process as the host sees it: messages, output, signals and its end.

What a worker sends is data from code that nobody vouches for: it is decoded by schema and
never unpickled, and a worker that breaks the protocol is ended.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Protocol

from holdfast.model.errors import CaptureFailed, Corrupt
from holdfast.protocol.session_messages import (
    Message,
    ResultMessage,
    Stream,
    WorkerMessage,
    decode_worker,
    frame,
)
from holdfast.session.link import Link
from holdfast.session.output import Pipe

_ID = struct.Struct("=Q")
_FILES = 2  # that may wait to be taken
_LINGER = 2.0  # how long a process may live on without its control socket
_WORDS = 4096  # characters of stderr that may tell why it ended
_TRACEBACK = "Traceback (most recent call last)"
_PROCESS_CLOCK = 2  # CPUCLOCK_SCHED of <linux/posix-timers.h>: what all threads have used


class Ends(NamedTuple):
    """The worker's ends of everything that connects it with its host."""

    control: int
    page: int
    stdout: int
    stderr: int


class Handle(Protocol):
    """A process that has been started, in one way or another."""

    pid: int
    pidfd: int

    def when_ended(self, tell: Callable[[int | None], None]) -> None:
        """The process has ended: tell its exit code, or None where nobody knows it."""


class WorkerProcess:
    """One running worker. Everything here happens on the event loop that started it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.deliver: Callable[[Stream, str], None] = lambda stream, text: None
        self.on_end: Callable[[], None] = lambda: None
        with ExitStack() as stack:  # there may be no room for all of these
            out = Pipe("stdout", self._deliver)
            stack.callback(out.close)
            err = Pipe("stderr", self._deliver)
            stack.callback(err.close)
            self._pipes = out, err
            near, self._theirs = map(stack.enter_context, socket.socketpair())
            self._link = Link(near, self._accept, self._without_control, takes_files=True)
            self._page_fd = os.memfd_create("holdfast-interrupt", os.MFD_CLOEXEC)
            stack.callback(os.close, self._page_fd)
            os.ftruncate(self._page_fd, _ID.size)
            self._page = mmap.mmap(self._page_fd, _ID.size)
            stack.pop_all()
        self._messages: asyncio.Queue[WorkerMessage | None] = asyncio.Queue()
        self._handle: Handle | None = None
        self._code: int | None = None
        self._ended = asyncio.Event()
        self._fault = ""
        self._last_words = ""
        self._linger: asyncio.TimerHandle | None = None

    @property
    def ends(self) -> Ends:
        """For whoever starts the process."""
        out, err = self._pipes
        return Ends(self._theirs.fileno(), self._page_fd, out.write_fd, err.write_fd)

    def attach(self, handle: Handle) -> None:
        """The process runs and has its own copy of the ends; its first message is Ready."""
        self._handle = handle
        self._let_go()
        self._loop.add_reader(handle.pidfd, self._on_exit)
        self._link.begin()
        for pipe in self._pipes:
            self._loop.add_reader(pipe.fd, self._on_output, pipe)

    def abandon(self) -> None:
        """No process was started: give back what was made for it."""
        self._let_go()
        self._close()

    @property
    def pid(self) -> int:
        return self._handle.pid if self._handle is not None else 0

    @property
    def alive(self) -> bool:
        return self._handle is not None and not self._ended.is_set()

    @property
    def how_it_ended(self) -> str:
        """Why there is no worker any more, in words."""
        if self._fault:
            return self._fault
        if self._code is None:
            return "the worker is gone"
        if self._code < 0:
            try:
                name = signal.Signals(-self._code).name
            except ValueError:
                name = "unknown"
            return f"the worker was killed by signal {-self._code} ({name})"
        return f"the worker exited with code {self._code}{self._error}"

    @property
    def _error(self) -> str:
        """The last line of what it said before it ended with an error of its own."""
        said = self._last_words.strip()
        return f": {said.splitlines()[-1]}" if self._code == 1 and _TRACEBACK in said else ""

    @property
    def cpu_seconds(self) -> float:
        """What the worker's threads have computed so far; its children do not count."""
        try:
            return time.clock_gettime(~self.pid << 3 | _PROCESS_CLOCK)
        except OSError:  # it has ended
            return 0.0

    def send(self, message: Message, files: Sequence[int] = ()) -> None:
        """Write one message. A worker that is gone is noticed by `receive`.

        The files stay open until an answer has come.
        """
        data = frame(message)
        if self.alive:
            self._link.send(data, files)

    async def drained(self) -> None:
        """Wait until little waits to be sent, or the worker has ended."""
        await self._link.drained()

    def take_file(self) -> int:
        """The file that came with a message; whoever takes it closes it. Raises CaptureFailed."""
        if not self._link.files:
            raise CaptureFailed("the worker sent no file with its capture")
        return self._link.files.popleft()

    async def receive(self) -> WorkerMessage | None:
        """The next message, or None when the worker has ended."""
        if self._ended.is_set() and self._messages.empty():
            return None
        return await self._messages.get()

    def interrupt(self, execution_id: int) -> None:
        """Raise KeyboardInterrupt in that execution, if it is the one that runs."""
        if self.alive:
            _ID.pack_into(self._page, 0, execution_id)
            self._signal(signal.SIGINT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    async def ended(self, timeout: float | None = None) -> bool:
        """Wait for the end; False when it did not come in time."""
        try:
            await asyncio.wait_for(self._ended.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def _signal(self, number: int) -> None:
        if self._handle is not None and self.alive:
            try:
                signal.pidfd_send_signal(self._handle.pidfd, number)
            except ProcessLookupError:
                return  # it has just ended
            except OSError as error:
                if error.errno not in (errno.ENOSYS, errno.EBADF):
                    raise
                # No pidfd on this kernel; the number is not another's before we have collected it.
                os.kill(self._handle.pid, number)

    def _deliver(self, stream: Stream, text: str) -> None:
        if stream == "stderr":
            self._last_words = (self._last_words + text)[-_WORDS:]
        self.deliver(stream, text)

    def _without_control(self, fault: str) -> None:
        if fault:
            self._fault = f"the worker broke the protocol: {fault}"
            self.kill()
        elif self._linger is None:  # one that ends as it should takes a moment, too
            self._linger = self._loop.call_later(_LINGER, self._end_stray)

    def _end_stray(self) -> None:
        """The process lives on where nobody can talk to it: it has become another program."""
        if self.alive:
            self._fault = "the worker closed its control socket and was killed"
            self.kill()

    def _accept(self, payload: bytes) -> None:
        message = decode_worker(payload)
        if len(self._link.files) > _FILES:
            raise Corrupt("more files than anybody asked for")
        if isinstance(message, ResultMessage):
            # Everything the cell wrote is in the pipes by now, and comes before its result.
            for pipe in self._pipes:
                pipe.drain(final=True)
            self._last_words = ""  # it was not the end
        self._messages.put_nowait(message)

    def _on_output(self, pipe: Pipe) -> None:
        pipe.drain()
        if not pipe.open:
            self._loop.remove_reader(pipe.fd)

    def _on_exit(self) -> None:
        assert self._handle is not None
        self._loop.remove_reader(self._handle.pidfd)
        self._handle.when_ended(self._finish)

    def _finish(self, code: int | None) -> None:
        assert self._handle is not None
        self._code = code
        self._link.read()
        for pipe in self._pipes:
            self._loop.remove_reader(pipe.fd)
            pipe.drain(final=True)
        os.close(self._handle.pidfd)
        self._close()
        self._ended.set()
        self._messages.put_nowait(None)
        self.on_end()

    def _let_go(self) -> None:
        """Of the worker's ends, which are its own by now."""
        self._theirs.close()
        os.close(self._page_fd)
        for pipe in self._pipes:
            pipe.close_writer()

    def _close(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
        self._link.close()
        self._page.close()
        for pipe in self._pipes:
            pipe.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not sys.is_finalizing():
            self.kill()
