"""Children of the agent: forked ahead of time, told what to be, without any power by then."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import termios
from typing import Any, NoReturn

from holdfast.sandbox.agent import USER
from holdfast.sandbox.agent.files import file_verb

Order = dict[str, Any]  # JSON: what is in it depends on its type
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 4, 38, 24
libc = ctypes.CDLL(None, use_errno=True)


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


class Spare:
    """A child that was forked before anybody asked for it, and waits to be told what to become.
    It has our power until then and holds none of our descriptors but its own line."""

    def __init__(self) -> None:
        self.line, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            wait_for_order(theirs)
        theirs.close()

    def send(self, order: Order, ends: tuple[int, int, int, int]) -> None:
        """Raises OSError when it is gone."""
        text = json.dumps(order).encode()
        socket.send_fds(self.line, [struct.pack(">I", len(text))], ends)
        self.line.sendall(text)

    def close(self) -> None:
        """Without its line it ends."""
        self.line.close()


def wait_for_order(line: socket.socket) -> NoReturn:
    os.closerange(0, line.fileno())
    os.closerange(line.fileno() + 1, 4096)
    signal.set_wakeup_fd(-1)
    length, ends, _, _ = socket.recv_fds(line, 4, 4)
    if not length:
        os._exit(0)  # nobody needs it any more
    text = b""
    while len(text) < struct.unpack(">I", length)[0]:
        text += line.recv(1 << 18)
    order = json.loads(text)
    # The ends must not lie where they will go, nor where the program expects nothing.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 16) for fd in ends]
    become(order, (high[0], high[1], high[2]), high[3], order.get("rows") is not None)


def spawn(order: Order, spare: Spare | None) -> Process:
    """Let a child become a program. Raises OSError when that cannot be run."""
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
        pid = hand_out(order, (*ends, trouble_write), spare)
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


def hand_out(order: Order, ends: tuple[int, int, int, int], spare: Spare | None) -> int:
    """The child that now becomes the program: the one that waited, or a new one."""
    for child in (spare, None):
        child = child or Spare()
        try:
            child.send(order, ends)
            return child.pid
        except OSError:
            continue  # somebody ended it; a new one is there for sure
        finally:
            child.close()
    raise OSError(errno.EAGAIN, "no process can be started")


def become(order: Order, ends: tuple[int, int, int], trouble: int, terminal: bool) -> NoReturn:
    """In the child: give up all power, then be the program."""
    where = ""
    try:
        os.setsid()
        for target, fd in enumerate(ends):
            os.dup2(fd, target)
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Python ignores these two, and ignoring is inherited.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        for name, limit in order.get("limits", {}).items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
        give_up_power()
        os.closerange(3, trouble)
        os.closerange(trouble + 1, 64)  # those above were closed when it began to wait
        where = order.get("cwd") or "/"
        os.chdir(where)
        if "call" in order:
            os.close(trouble)
            file_verb(order)
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


def may_be_looked_at(yes: bool) -> None:
    """Whether others of our user, and our namespace's root, may look into our memory."""
    libc.prctl(PR_SET_DUMPABLE, int(yes), 0, 0, 0)
