"""The agent's loop. One thread: between two turns of it no frame is ever half written."""

from __future__ import annotations

import errno
import os
from select import EPOLLIN, EPOLLOUT, epoll

from holdfast.sandbox.agent import SPARES
from holdfast.sandbox.agent.begin import GENERATION
from holdfast.sandbox.agent.children import (
    Process,
    Spare,
    dismiss,
    gain_no_power,
    keep_orphans,
    may_be_looked_at,
    set_size,
    spawn,
)
from holdfast.sandbox.agent.copier import Copier, suits
from holdfast.sandbox.agent.nobody import Nobody, can_begin, step_aside, wanted
from holdfast.sandbox.agent.small import (
    SIGCHLD,
    SIGKILL,
    TYPE_CHECKING,
    decode,
    encode,
    set_wakeup_fd,
    signal,
)

if TYPE_CHECKING:
    from typing import NoReturn

    from holdfast.sandbox.agent.small import Order

PIECE = 64 * 1024
MAX_FRAME = 1 << 20
INPUT_WINDOW = 256 * 1024
# Of quiet, after which a child is forked for the next program: forking takes its time from whatever
# runs, and from an order that comes meanwhile.
SPARE_SECONDS, BUSY_SPARE_SECONDS = 0.02, 0.2
# And before an interpreter begins that is to be copied, which takes more of it: a sandbox that has
# just come back may be about to move on.
INTERPRETER_SECONDS = 0.5


class Agent:
    """The loop and what it looks after."""

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink
        self.buffer = bytearray()
        # All that is read goes through here: memory for each read would be asked of the kernel, and
        # given back, which takes longer in gVisor than reading.
        self.block = memoryview(bytearray(PIECE))
        self.processes: dict[str, Process] = {}
        self.spares: list[Spare] = []
        self.ready = int(os.environ.get("SPARES", SPARES))  # so many of them, when it is quiet
        # Where forks are dear, programs are begun without, and Python as a copy.
        self.nobody: Nobody | None = None
        self.copier: Copier | None = None
        self.poll = epoll()
        self.watched: dict[int, tuple[Process, int]] = {}
        self.poll.register(source, EPOLLIN)
        # A child's end wakes the loop through this pipe.
        self.wake, wake_up = os.pipe()
        os.set_blocking(wake_up, False)
        os.set_blocking(self.wake, False)
        signal(SIGCHLD, lambda *_: None)
        set_wakeup_fd(wake_up, warn_on_full_buffer=False)
        self.poll.register(self.wake, EPOLLIN)

    # -- frames

    def send(self, data: bytes | memoryview = b"", **header: object) -> None:
        self.write(frame(data, **header))

    def write(self, text: bytes) -> None:
        view = memoryview(text)
        while view:
            view = view[os.write(self.sink, view) :]

    def receive(self) -> list[tuple[bytes, bytes]]:
        """The frames that are complete now, after one read; ends when the host is gone."""
        count = os.readv(self.source, [self.block])
        if not count:
            os._exit(0)
        self.buffer += self.block[:count]
        frames = []
        while len(self.buffer) >= 4:
            length = int.from_bytes(self.buffer[:4], "big")
            if length > MAX_FRAME:
                os._exit(71)
            if len(self.buffer) < 4 + length:
                break
            line, _, data = bytes(self.buffer[4 : 4 + length]).partition(b"\n")
            del self.buffer[: 4 + length]
            frames.append((line, data))
        return frames

    # -- the loop

    def run(self) -> NoReturn:
        self.replenish()
        while True:
            found = self.poll.poll(self.rest())
            if not found:
                self.replenish()  # nothing else is to be done just now
            for fd, events in found:
                if fd == self.source:
                    for line, data in self.receive():
                        self.obey(line, data)
                elif fd == self.wake:
                    self.drain_wake()
                    self.reap()
                elif fd in self.watched:
                    self.serve(fd, events)
                elif self.copier is not None and fd == self.copier.fd:
                    self.copier.hear()

    def rest(self) -> float | None:
        """How much quiet it takes to make something ready; None when there is nothing to make."""
        if len(self.spares) < self.ready:
            return BUSY_SPARE_SECONDS if self.processes else SPARE_SECONDS
        return INTERPRETER_SECONDS if self.copier is not None and self.copier.missing else None

    def replenish(self) -> None:
        """Have one more child ready: an order that comes meanwhile waits for one fork only."""
        if len(self.spares) < self.ready:
            try:
                self.spares.append(Spare())
            except OSError:
                return  # there is no room for one now; whoever wants a program is told
        elif self.copier is not None:
            self.copier.replenish()

    def obey(self, line: bytes, data: bytes) -> None:
        header = decode(line)
        kind = header["type"]
        if kind == "start":
            self.start(header, line)
            return
        if kind == "quiesce":
            self.quiesce(header["epoch"])
            return
        process = self.processes.get(header["id"])
        if process is None:
            return  # it has ended meanwhile
        if kind == "input":
            self.take(process, data)
        elif kind == "credit":
            process.credit += header["bytes"]
            self.watch(process)
            self.finish(process)
        elif kind == "kill":
            self.kill(process)
        elif kind == "resize" and process.terminal is not None:
            set_size(process.terminal, header["rows"], header["columns"])

    def serve(self, fd: int, events: int) -> None:
        """A pipe's end and its errors are found by whoever reads or writes."""
        process, wanted = self.watched[fd]
        if wanted & EPOLLOUT and events & ~EPOLLIN:
            self.feed(process)
        if wanted & EPOLLIN and events & ~EPOLLOUT and fd in process.outputs:
            self.carry(process, fd)
            self.finish(process)

    # -- output

    def carry(self, process: Process, fd: int) -> bool:
        """Pass one piece of output on; False when there is none now."""
        ended = process.status is not None and process.identity not in self.processes
        room = PIECE if ended else min(PIECE, process.credit)
        if room <= 0:
            self.watch(process)
            return False
        try:
            data = self.block[: os.readv(fd, [self.block[:room]])]
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:  # how a terminal says that nobody is left
                raise
            data = self.block[:0]
        if not data:
            self.close_output(process, fd)
            return False
        if not ended:
            # Of a process that ended, a child may still write: it is read, so that the child does
            # not block, and dropped.
            process.credit -= len(data)
            self.send(data, type="output", id=process.identity, stream=process.outputs[fd])
            self.watch(process)
        return True

    def close_output(self, process: Process, fd: int) -> None:
        self.forget(fd)
        del process.outputs[fd]
        if fd == process.terminal:
            process.terminal = None
            process.input = None
        os.close(fd)
        self.finish(process)

    # -- input

    def take(self, process: Process, data: bytes) -> None:
        if data:
            process.pending += data
        else:
            process.input_ends = True
        self.feed(process)

    def feed(self, process: Process) -> None:
        if process.input is None:
            process.pending.clear()
            return
        if process.pending:
            try:
                count = os.write(process.input, process.pending)
                del process.pending[:count]
                self.send(type="granted", id=process.identity, bytes=count)
            except BlockingIOError:
                pass
            except OSError:  # it does not read any more
                process.pending.clear()
                process.input_ends = True
        if process.input_ends and not process.pending:
            if process.input == process.terminal:
                os.write(process.terminal, b"\x04")
                process.input_ends = False
            else:
                self.forget(process.input)
                os.close(process.input)
                process.input = None
        self.watch(process)

    # -- what the selector looks at

    def watch(self, process: Process) -> None:
        """Read while there is credit, write while there is something to write."""
        wanted: dict[int, int] = {}
        ended = process.status is not None and process.identity not in self.processes
        for fd in process.outputs:
            wanted[fd] = EPOLLIN if process.credit > 0 or ended else 0
        if process.input is not None and process.pending:
            wanted[process.input] = wanted.get(process.input, 0) | EPOLLOUT
        elif process.input is not None:
            wanted.setdefault(process.input, 0)
        for fd, events in wanted.items():
            self.look_at(fd, process, events)

    def look_at(self, fd: int, process: Process, events: int) -> None:
        known = self.watched.get(fd)
        if known == (process, events):
            return
        if not events:
            self.forget(fd)
            return
        if known is None:
            self.poll.register(fd, events)
        elif known[1] != events:
            self.poll.modify(fd, events)
        self.watched[fd] = (process, events)

    def forget(self, fd: int) -> None:
        if self.watched.pop(fd, None) is not None:
            self.poll.unregister(fd)

    # -- beginning and end

    def start(self, order: Order, text: bytes) -> None:
        identity = order["id"]
        try:
            if self.nobody is not None and can_begin(order):
                copier = self.copier if suits(order) else None
                process = self.nobody.begin(order, copier.copy if copier is not None else None)
            else:
                process = spawn(order, text, self.spares.pop(0) if self.spares else None)
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            self.send(type="failed", id=identity, message=f"{error.strerror}{where}")
            return
        self.processes[identity] = process
        told = frame(type="started", id=identity)
        if process.input is not None:
            told += frame(type="granted", id=identity, bytes=INPUT_WINDOW)
        self.write(told)
        self.watch(process)

    def kill(self, process: Process) -> None:
        if process.status is None:
            try:
                os.killpg(process.pid, SIGKILL)
            except ProcessLookupError:
                return

    def drain_wake(self) -> None:
        try:
            while os.readv(self.wake, [self.block]) == len(self.block):
                pass
        except BlockingIOError:
            return

    def reap(self) -> None:
        """Collect the dead, our own and the orphans that fell to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                # Nobody's end; also told, and always, of those that ask us to trace them.
                if self.copier is not None:
                    self.copier.stopped(pid)
                continue
            for spare in [each for each in self.spares if each.pid == pid]:
                spare.close()  # its number may soon be another's
                self.spares.remove(spare)
            if self.copier is not None:
                self.copier.reaped(pid)
            self.over(pid, status)

    def over(self, pid: int, status: int) -> None:
        """A process has ended."""
        for process in list(self.processes.values()):
            if process.pid == pid:
                process.status = status
                self.finish(process)

    def finish(self, process: Process) -> None:
        """Say that a process ended, once everything it wrote has been carried."""
        if process.status is None or process.identity not in self.processes:
            return
        for fd in list(process.outputs):
            while fd in process.outputs and process.credit > 0 and self.carry(process, fd):
                pass
            if process.identity not in self.processes:
                return
        if process.credit <= 0 and process.outputs:
            return  # the rest when there is credit; `carry` comes back here
        del self.processes[process.identity]
        code = os.waitstatus_to_exitcode(process.status)
        key = "code" if code >= 0 else "signal"
        self.send(b"", **{"type": "ended", "id": process.identity, key: abs(code)})
        if process.input is not None and process.input != process.terminal:
            self.forget(process.input)
            os.close(process.input)
            process.input = None
        self.watch(process)

    # -- freezing

    def quiesce(self, epoch: int) -> None:
        """Have nothing under way, say so, and wait: for this host or, restored, for another."""
        # Copies of us that have nothing to do yet would double what is frozen.
        spares, self.spares = self.spares, []
        dismiss(spares)
        if self.copier is not None:
            self.copier.dismiss()
        # CRIU looks at us from inside our user namespace, and may not otherwise once we were
        # restored. Programs still may not: we are another user to them.
        may_be_looked_at(True)
        self.send(type="quiesced", epoch=epoch)
        while True:
            for line, _ in self.receive():
                header = decode(line)
                if header["type"] == "resume" and header["epoch"] == epoch:
                    may_be_looked_at(False)
                    if header.get("generation"):
                        write_generation(header["generation"])
                    self.send(type="resumed", epoch=epoch)
                    return


def frame(data: bytes | memoryview = b"", **header: object) -> bytes:
    line = encode(header) + b"\n"
    return b"".join(((len(line) + len(data)).to_bytes(4, "big"), line, data))


def write_generation(generation: str) -> None:
    os.makedirs(os.path.dirname(GENERATION), exist_ok=True)
    with open(GENERATION + ".new", "w") as file:
        file.write(generation + "\n")
    os.rename(GENERATION + ".new", GENERATION)


def look_after(source: int, sink: int) -> NoReturn:
    """Everything inside, from the moment in which the first program may begin."""
    may_be_looked_at(False)
    keep_orphans()
    if os.environ.get("KEYRINGS") == "off":  # where sandboxes share them
        # Only here: gVisor has a kernel for each, and an agent that begins sooner without.
        from holdfast.sandbox.agent.keyrings import forgo_keyrings

        gain_no_power()
        forgo_keyrings()
    agent = Agent(source, sink)
    if not wanted():
        agent.run()

    def run() -> NoReturn:
        agent.nobody = nobody = Nobody()
        agent.copier = Copier(nobody.launch, agent.poll, agent.over)
        agent.run()

    step_aside(run)
