"""The first process inside a sandbox: starts programs, carries their streams, reaps the dead.

One file with nothing but the standard library, because it runs in roots that hold nothing else of
ours. It speaks frames on its standard streams (spec/sandbox-v1.md, section 2) and ends with them.
One thread, one loop: between two turns of the loop no frame is ever half written.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import selectors
import signal
import stat
import struct
import termios
from typing import Any, NoReturn

Order = dict[str, Any]  # JSON: what is in it depends on its type
VERSION = 1
USER = 60999  # beyond what people and packages use
PIECE = 64 * 1024
MAX_FRAME = 1 << 20
INPUT_WINDOW = 256 * 1024
GENERATION = "/run/holdfast/generation"
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 4, 38, 24


class Process:
    """A program that was started, and the pipes or the terminal that belong to it."""

    def __init__(self, identity: str, pid: int, window: int) -> None:
        self.identity = identity
        self.pid = pid
        self.credit = window
        self.outputs: dict[int, str] = {}  # descriptor to stream
        self.input: int | None = None
        self.terminal: int | None = None
        self.pending = bytearray()  # input that the program has not taken
        self.input_ends = False
        self.status: int | None = None


class Agent:
    """The loop and what it looks after."""

    def __init__(self, source: int, sink: int) -> None:
        self.source = source
        self.sink = sink
        self.buffer = bytearray()
        self.processes: dict[str, Process] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(source, selectors.EVENT_READ, None)
        # A child's end wakes the loop through this pipe.
        self.wake, wake_up = os.pipe()
        os.set_blocking(wake_up, False)
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_up, warn_on_full_buffer=False)
        self.selector.register(self.wake, selectors.EVENT_READ, None)

    # -- frames

    def send(self, data: bytes = b"", **header: object) -> None:
        payload = json.dumps(header).encode() + b"\n" + data
        view = memoryview(struct.pack(">I", len(payload)) + payload)
        while view:
            view = view[os.write(self.sink, view) :]

    def receive(self) -> list[tuple[Order, bytes]]:
        """The frames that are complete now, after one read; ends when the host is gone."""
        block = os.read(self.source, 1 << 18)
        if not block:
            os._exit(0)
        self.buffer += block
        frames = []
        while len(self.buffer) >= 4:
            length = struct.unpack_from(">I", self.buffer)[0]
            if length > MAX_FRAME:
                os._exit(71)
            if len(self.buffer) < 4 + length:
                break
            line, _, data = bytes(self.buffer[4 : 4 + length]).partition(b"\n")
            del self.buffer[: 4 + length]
            frames.append((json.loads(line), data))
        return frames

    # -- the loop

    def run(self) -> NoReturn:
        self.send(type="ready", version=VERSION)
        while True:
            for key, events in self.selector.select():
                if key.fileobj == self.source:
                    for header, data in self.receive():
                        self.obey(header, data)
                elif key.fileobj == self.wake:
                    self.drain_wake()
                    self.reap()
                else:
                    self.serve(key.data, key.fd, events)

    def obey(self, header: Order, data: bytes) -> None:
        kind = header["type"]
        if kind == "start":
            self.start(header)
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

    def serve(self, process: Process, fd: int, events: int) -> None:
        if self.processes.get(process.identity) is not process and fd not in process.outputs:
            return
        if events & selectors.EVENT_WRITE:
            self.feed(process)
        if events & selectors.EVENT_READ and fd in process.outputs:
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
            data = os.read(fd, room)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:  # how a terminal says that nobody is left
                raise
            data = b""
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
            wanted[fd] = selectors.EVENT_READ if process.credit > 0 or ended else 0
        if process.input is not None and process.pending:
            wanted[process.input] = wanted.get(process.input, 0) | selectors.EVENT_WRITE
        elif process.input is not None:
            wanted.setdefault(process.input, 0)
        for fd, events in wanted.items():
            if not events:
                self.forget(fd)
                continue
            try:
                self.selector.modify(fd, events, process)
            except KeyError:
                self.selector.register(fd, events, process)

    def forget(self, fd: int) -> None:
        try:
            self.selector.unregister(fd)
        except KeyError:
            return

    # -- beginning and end

    def start(self, order: Order) -> None:
        identity = order["id"]
        try:
            process = spawn(order)
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            self.send(type="failed", id=identity, message=f"{error.strerror}{where}")
            return
        self.processes[identity] = process
        for fd in {*process.outputs, *([process.input] if process.input is not None else [])}:
            os.set_blocking(fd, False)
        self.send(type="started", id=identity)
        if process.input is not None:
            self.send(type="granted", id=identity, bytes=INPUT_WINDOW)
        self.watch(process)

    def kill(self, process: Process) -> None:
        if process.status is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def drain_wake(self) -> None:
        try:
            while os.read(self.wake, 4096):
                pass
        except BlockingIOError:
            return

    def reap(self) -> None:
        """Collect the dead, our own and the orphans that fell to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
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
        # CRIU looks at us from inside our user namespace, and may not otherwise once we were
        # restored. Programs still may not: we are another user to them.
        libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        self.send(type="quiesced", epoch=epoch)
        while True:
            for header, _ in self.receive():
                if header["type"] == "resume" and header["epoch"] == epoch:
                    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
                    if header.get("generation"):
                        write_generation(header["generation"])
                    self.send(type="resumed", epoch=epoch)
                    return


# -- processes


def spawn(order: Order) -> Process:
    """Fork and execute. Raises OSError when the program cannot be run."""
    terminal = order.get("rows") is not None
    own: list[int] = []
    try:
        if terminal:
            master, slave = os.openpty()
            own += [master, slave]
            set_size(slave, order["rows"], order["columns"])
            if os.getuid() == 0:
                os.fchown(slave, USER, USER)
            ends = (slave, slave, slave)
        else:
            if order.get("stdin", True):
                input_read, input_write = os.pipe()
            else:
                input_read, input_write = os.open("/dev/null", os.O_RDONLY), -1
            out_read, out_write = os.pipe()
            err_read, err_write = os.pipe()
            own += [input_read, input_write, out_read, out_write, err_read, err_write]
            ends = (input_read, out_write, err_write)
        trouble_read, trouble_write = os.pipe()
        own += [trouble_read, trouble_write]
        pid = os.fork()
        if pid == 0:
            become(order, ends, trouble_write, terminal)
        os.close(trouble_write)
        own.remove(trouble_write)
        trouble = os.read(trouble_read, 4096)
        if trouble:
            os.waitpid(pid, 0)
            number, _, where = trouble.decode("utf-8", "replace").partition(" ")
            raise OSError(int(number), os.strerror(int(number)), where or None)
        process = Process(order["id"], pid, order["window"])
        if terminal:
            process.terminal = process.input = master
            process.outputs = {master: "stdout"}
            own.remove(master)
        else:
            process.input = input_write if input_write >= 0 else None
            process.outputs = {out_read: "stdout", err_read: "stderr"}
            for fd in (input_write, out_read, err_read):
                own.remove(fd)
        return process
    finally:
        for fd in own:
            if fd >= 0:
                os.close(fd)


def become(order: Order, ends: tuple[int, int, int], trouble: int, terminal: bool) -> NoReturn:
    """In the child: give up all power, then be the program."""
    where = ""
    try:
        os.setsid()
        for target, fd in enumerate(ends):
            os.dup2(fd, target)
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Python ignores these two, and ignoring is inherited.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        for name, limit in order.get("limits", {}).items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
        give_up_power()
        os.closerange(3, trouble)
        os.closerange(trouble + 1, 4096)
        where = order.get("cwd") or "/"
        os.chdir(where)
        if "call" in order:
            os.close(trouble)
            file_verb(order["call"], order["path"])
        where = order["argv"][0]
        os.set_inheritable(trouble, False)
        os.umask(0o022)
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except OSError as error:
        os.write(trouble, f"{error.errno} {where}".encode())
    except Exception as error:  # noqa: BLE001  told to the parent, which is us
        os.write(trouble, f"{errno.EINVAL} {type(error).__name__}".encode())
    os._exit(127)


def give_up_power() -> None:
    """Another user, no capabilities, and no way to get any."""
    if os.getuid() == 0:
        last = 63
        for capability in range(last + 1):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
                break  # beyond the last one that this kernel knows
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def write_generation(generation: str) -> None:
    os.makedirs(os.path.dirname(GENERATION), exist_ok=True)
    with open(GENERATION + ".new", "w") as file:
        file.write(generation + "\n")
    os.rename(GENERATION + ".new", GENERATION)


# -- files, as the user whose files they are


def file_verb(verb: str, path: str) -> NoReturn:
    """Do one thing to a file, with the standard streams as its data."""
    try:
        if verb == "read":
            with open(path, "rb", opener=regular) as file:
                while block := file.read(1 << 20):
                    write_all(block)
        elif verb == "write":
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            part = f"{path}.holdfast-part-{os.getpid()}"
            with open(part, "wb") as file:
                while block := os.read(0, 1 << 20):
                    file.write(block)
            os.rename(part, path)
        elif verb == "list":
            for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
                write_all(json.dumps(described(entry)).encode() + b"\n")
        elif verb == "mkdir":
            os.makedirs(path, exist_ok=True)
        elif verb == "remove":
            remove(path)
    except OSError as error:
        os.write(2, f"{error.errno} {error.strerror}: {path}".encode())
        os._exit(1)
    os._exit(0)


def regular(path: str, flags: int) -> int:
    """Open without waiting for a writer: reading a pipe or a device would never end."""
    fd = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def described(entry: os.DirEntry[str]) -> dict[str, object]:
    status = entry.stat(follow_symlinks=False)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    return {
        "name": entry.name.encode("utf-8", "replace").decode(),
        "kind": kinds.get(stat.S_IFMT(status.st_mode), "other"),
        "size": status.st_size,
        "mode": stat.S_IMODE(status.st_mode),
        "modified": status.st_mtime,
    }


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        for entry in os.scandir(path):
            remove(entry.path)
        os.rmdir(path)
    else:
        os.unlink(path)


def write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


libc = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    # The channel moves off the descriptors that programs think of as theirs.
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    Agent(source, sink).run()


if __name__ == "__main__":
    main()
