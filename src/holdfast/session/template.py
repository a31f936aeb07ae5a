"""A template as the host sees it: started once, warmed up once, forked for each worker."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack

from holdfast.model.errors import BadInput, Corrupt, HoldfastError
from holdfast.protocol.session_messages import (
    ExitedMessage,
    ForkedMessage,
    ForkMessage,
    Message,
    WarmedMessage,
    WarmMessage,
    decode_template_reply,
    frame,
)
from holdfast.session.link import Link
from holdfast.session.output import Early, Pipe
from holdfast.session.process import WorkerProcess
from holdfast.session.workers import START_TIMEOUT, Launch, last_line, made, ready

WARM_TIMEOUT = 600.0
_CODE_LATE = 1.0  # seconds that an exit code may take after its process


class Forked:
    """A worker that a template forked: its exit code is the template's to know."""

    def __init__(self, pid: int, pidfd: int, template: Template) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self._template = template

    def when_ended(self, tell: Callable[[int | None], None]) -> None:
        self._template.tell_code(self.pid, tell)


class Template:
    """One running template, on the event loop that started it."""

    def __init__(self, launch: Launch, warmup: str) -> None:
        self._launch = launch
        self._warmup = warmup
        self._loop = asyncio.get_running_loop()
        self._said = Early()
        with ExitStack() as stack:  # there may be no room for both
            out = Pipe("stdout", self._said.add)
            stack.callback(out.close)
            self._pipes = out, Pipe("stderr", self._said.add)
            stack.pop_all()
        self._link: Link | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._warmed: asyncio.Future[WarmedMessage | None] = self._loop.create_future()
        self._forks: dict[int, asyncio.Future[Forked | None]] = {}
        self._requests = 0
        self._codes: dict[int, int] = {}
        self._waiting: dict[int, Callable[[int | None], None]] = {}
        self._fault = ""  # how it broke the protocol
        self.alive = False

    async def start(self) -> None:
        """Start the process and run the warm-up. Raises BadInput when that fails."""
        try:
            near, far = socket.socketpair()
        except OSError:
            self._let_go()
            raise
        self._link = Link(near, self._accept, self._ended, takes_files=True)
        out, err = self._pipes
        try:
            process = self._launch.spawn(
                "template", (far.fileno(),), stdout=out.write_fd, stderr=err.write_fd
            )
        except BaseException:
            self._let_go()
            raise
        finally:
            far.close()
            for pipe in self._pipes:
                pipe.close_writer()
        self._process = process
        self.alive = True
        self._link.begin()
        for pipe in self._pipes:
            self._loop.add_reader(pipe.fd, self._on_output, pipe)
        self._send(WarmMessage(code=self._warmup))
        try:
            warmed = await asyncio.wait_for(asyncio.shield(self._warmed), WARM_TIMEOUT)
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                text = f"the warm-up did not end within {WARM_TIMEOUT:g} s"
                raise BadInput(text, hint="warm up with what is quick") from None
            raise
        if warmed is None:
            await self.close()
            raise HoldfastError(
                f"the template ended: {last_line(self._said.take()) or 'without a word'}",
                hint=f"see whether `{self._launch.python}` can import holdfast and msgspec",
            )
        if warmed.error is not None:
            await self.close()
            failed = BadInput(
                f"the warm-up failed: {warmed.error.error_type}: {warmed.error.message}",
                hint="run it in a session by itself to see why",
            )
            failed.add_note(warmed.error.traceback.rstrip())
            raise failed

    async def fork(self) -> WorkerProcess:
        """A new worker. Raises HoldfastError."""
        worker = made()
        self._requests += 1
        request = self._requests
        done = self._forks[request] = self._loop.create_future()
        self._send(ForkMessage(request_id=request), worker.ends)
        try:
            forked = await asyncio.wait_for(done, START_TIMEOUT) if self.alive else None
        except BaseException:
            worker.abandon()
            raise
        finally:
            self._forks.pop(request, None)
        if forked is None:
            worker.abandon()
            why = f": it broke the protocol: {self._fault}" if self._fault else ""
            raise HoldfastError(
                f"the template of the pool has ended{why}",
                hint="ask again: the pool starts another one",
            )
        worker.attach(forked)
        return await ready(worker, "end the pool and make a new one")

    def tell_code(self, pid: int, tell: Callable[[int | None], None]) -> None:
        """Tell a worker's exit code as soon as the template has; None when it never will."""
        if pid in self._codes or not self.alive:
            tell(self._codes.pop(pid, None))
            return
        self._waiting[pid] = tell
        self._loop.call_later(_CODE_LATE, self._told, pid, None)

    async def close(self) -> None:
        """End the process, and with it every worker that it forked."""
        self._ended("")
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            await asyncio.to_thread(process.wait)

    def _send(self, message: Message, files: tuple[int, ...] = ()) -> None:
        if self._link is not None:
            self._link.send(frame(message), files)

    def _accept(self, payload: bytes) -> None:
        assert self._link is not None
        match decode_template_reply(payload):
            case WarmedMessage() as message:
                if not self._warmed.done():
                    self._warmed.set_result(message)
            case ForkedMessage(request_id=request, pid=pid):
                if not self._link.files:
                    raise Corrupt("the template sent no process with its answer")
                forked = Forked(pid, self._link.files.popleft(), self)
                waiting = self._forks.get(request)
                if waiting is not None and not waiting.done():
                    waiting.set_result(forked)
                else:
                    os.close(forked.pidfd)  # nobody wants it any more; without a host it ends
            case ExitedMessage(pid=pid, code=code):
                self._told(pid, code)

    def _told(self, pid: int, code: int | None) -> None:
        tell = self._waiting.pop(pid, None)
        if tell is not None:
            tell(code)
        elif code is not None:
            self._codes[pid] = code

    def _ended(self, why: str) -> None:
        self.alive = False
        self._fault = self._fault or why
        if not self._warmed.done():
            self._warmed.set_result(None)
        for waiting in self._forks.values():
            if not waiting.done():
                waiting.set_result(None)
        for pid in list(self._waiting):
            self._told(pid, None)
        self._let_go()

    def _let_go(self) -> None:
        for pipe in self._pipes:
            if pipe.fd >= 0:
                self._loop.remove_reader(pipe.fd)
                pipe.drain(final=True)
                pipe.close()
        if self._link is not None:
            self._link.close()

    def _on_output(self, pipe: Pipe) -> None:
        pipe.drain()
        if not pipe.open:
            self._loop.remove_reader(pipe.fd)
