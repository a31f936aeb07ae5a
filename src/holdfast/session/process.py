"""A worker process as the host sees it: messages, output, signals and its end.

What a worker sends is data from code that nobody vouches for: it is decoded by schema and
never unpickled, and a worker that breaks the protocol is ended.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

import holdfast
from holdfast.model.errors import Corrupt
from holdfast.protocol.frames import FrameDecoder
from holdfast.protocol.session_messages import (
    Message,
    ResultMessage,
    Stream,
    WorkerMessage,
    decode_worker,
    frame,
)
from holdfast.session.output import Pipe
from holdfast.session.spawner import spawn

_BOOT = (
    "import sys\n"
    "root = sys.argv.pop()\n"
    "if root not in sys.path: sys.path.append(root)\n"
    "from holdfast.session.worker.main import main\n"
    "main(sys.argv[1:])"
)
_ID = struct.Struct("=Q")
_LINGER = 2.0  # how long a process may live on without its control socket
_WAITING = 4 << 20  # bytes that wait to be sent before `drained` waits


class WorkerProcess:
    """One running worker. Everything here happens on the event loop that started it."""

    def __init__(self, deliver: Callable[[Stream, str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipes = (Pipe("stdout", deliver), Pipe("stderr", deliver))
        self._control, self._theirs = socket.socketpair()
        self._control.setblocking(False)
        page = os.memfd_create("holdfast-interrupt", os.MFD_CLOEXEC)
        os.ftruncate(page, _ID.size)
        self._page_fd = page
        self._page = mmap.mmap(page, _ID.size)
        self._decoder = FrameDecoder()
        self._messages: asyncio.Queue[WorkerMessage | None] = asyncio.Queue()
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._ended = asyncio.Event()
        self._fault = ""
        self._outgoing: deque[memoryview] = deque()
        self._outgoing_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._linger: asyncio.TimerHandle | None = None

    def start(self, python: str, env: Mapping[str, str], cwd: Path | None) -> None:
        """Start the process; its first message is a ReadyMessage."""
        root = str(Path(holdfast.__file__).parent.parent)
        fds = (self._theirs.fileno(), self._page_fd)
        arguments = [python, "-u", "-X", "utf8", "-c", _BOOT]
        self._process = spawn(
            [*arguments, *map(str, (*fds, os.getpid())), root],
            stdout=self._pipes[0].write_fd,
            stderr=self._pipes[1].write_fd,
            pass_fds=fds,
            env=env,
            cwd=cwd,
        )
        self._theirs.close()
        os.close(self._page_fd)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._on_exit)
        self._loop.add_reader(self._control, self._on_control)
        for pipe in self._pipes:
            pipe.close_writer()
            self._loop.add_reader(pipe.fd, self._on_output, pipe)

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def alive(self) -> bool:
        return self._process is not None and not self._ended.is_set()

    @property
    def how_it_ended(self) -> str:
        """Why there is no worker any more, in words."""
        if self._fault:
            return self._fault
        code = self._process.returncode if self._process is not None else None
        if code is None:
            return "the worker is gone"
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = "unknown"
            return f"the worker was killed by signal {-code} ({name})"
        return f"the worker exited with code {code}"

    def send(self, message: Message) -> None:
        """Write one message, as a whole and as soon as the worker takes it.

        Nobody waits for that: a worker that does not read must not hold its host up. One that
        is gone is noticed by `receive`.
        """
        data = frame(message)
        if not self.alive:
            return
        self._outgoing.append(memoryview(data))
        self._outgoing_bytes += len(data)
        if len(self._outgoing) == 1:
            self._loop.add_writer(self._control, self._on_writable)
            self._on_writable()
        if self._outgoing_bytes > _WAITING:
            self._room.clear()

    async def drained(self) -> None:
        """Wait until little waits to be sent, or the worker has ended."""
        await self._room.wait()

    async def receive(self) -> WorkerMessage | None:
        """The next message, or None when the worker has ended."""
        if self._ended.is_set() and self._messages.empty():
            return None
        return await self._messages.get()

    def interrupt(self, execution_id: int) -> None:
        """Raise KeyboardInterrupt in that execution, if it is the one that runs."""
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
        if self.alive:
            signal.pidfd_send_signal(self._pidfd, number)

    def _on_writable(self) -> None:
        try:
            while self._outgoing:
                sent = self._control.send(self._outgoing[0])
                self._outgoing_bytes -= sent
                rest = self._outgoing[0][sent:]
                if rest:
                    self._outgoing[0] = rest
                else:
                    self._outgoing.popleft()
        except BlockingIOError:
            pass  # it goes on when there is room
        except OSError:
            self._stop_sending()  # nobody reads it any more
            return
        if not self._outgoing:
            self._loop.remove_writer(self._control)
        if self._outgoing_bytes <= _WAITING:
            self._room.set()

    def _stop_sending(self) -> None:
        self._loop.remove_writer(self._control)
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._room.set()

    def _without_control(self) -> None:
        """The process lives on where nobody can talk to it: it has become another program."""
        if self.alive:
            self._fault = "the worker closed its control socket and was killed"
            self.kill()

    def _on_control(self) -> None:
        while True:
            try:
                data = self._control.recv(1 << 18)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self._loop.remove_reader(self._control)
                self._stop_sending()
                if self._linger is None:  # one that ends as it should takes a moment, too
                    self._linger = self._loop.call_later(_LINGER, self._without_control)
                return
            try:
                payloads = self._decoder.feed(data)
                for payload in payloads:
                    self._accept(decode_worker(payload))
            except Corrupt as error:
                self._fault = f"the worker broke the protocol: {error}"
                self.kill()
                return

    def _accept(self, message: WorkerMessage) -> None:
        if isinstance(message, ResultMessage):
            # Everything the cell wrote is in the pipes by now, and comes before its result.
            for pipe in self._pipes:
                pipe.drain(final=True)
        self._messages.put_nowait(message)

    def _on_output(self, pipe: Pipe) -> None:
        pipe.drain()
        if not pipe.open:
            self._loop.remove_reader(pipe.fd)

    def _on_exit(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._on_control()
        for pipe in self._pipes:
            self._loop.remove_reader(pipe.fd)
            pipe.drain(final=True)
            pipe.close()
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._control)
        self._stop_sending()
        if self._linger is not None:
            self._linger.cancel()
        os.close(self._pidfd)
        self._control.close()
        self._page.close()
        self._ended.set()
        self._messages.put_nowait(None)

    def __del__(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None and process.poll() is None and not sys.is_finalizing():
            process.kill()
            process.wait()
