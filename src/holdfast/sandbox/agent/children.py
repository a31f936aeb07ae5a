"""Children of the agent: forked ahead of time, told what to be, without any power by then."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import termios

from holdfast.sandbox.agent import USER
from holdfast.sandbox.agent.files import file_verb
from holdfast.sandbox.agent.small import (
    SIG_DFL,
    SIG_SETMASK,
    SIGCHLD,
    SIGKILL,
    SIGPIPE,
    SIGXFSZ,
    TYPE_CHECKING,
    decode,
    pthread_sigmask,
    set_wakeup_fd,
    signal,
)

if TYPE_CHECKING:
    from typing import NoReturn

    from holdfast.sandbox.agent.small import Order

PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 4, 38, 24
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
PR_SET_CHILD_SUBREAPER = 36
LAST_CAPABILITY = 63
BEYOND = 64  # where a child has the two descriptors that its program will not
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

    @classmethod
    def on_pipes(cls, order: Order, pid: int, pipes: list[int]) -> Process:
        """With our ends of the pipes that are its standard streams, perhaps without the first."""
        process = cls(order["id"], pid, order["window"])
        *given, output, errors = pipes
        process.outputs = {output: "stdout", errors: "stderr"}
        for fd in given:
            if order.get("stdin", True):
                process.input = fd
            else:
                os.close(fd)
        return process


def lay_pipes(ours: list[int], theirs: list[int], *we_read: bool) -> None:
    """Pipes between us and a child, each end in its list; also those before one that fails."""
    for reading in we_read:
        ends = os.pipe()
        ours.append(ends[0] if reading else ends[1])
        theirs.append(ends[1] if reading else ends[0])


class Spare:
    """A child that was forked before anybody asked for it, with pipes of its own, and waits to be
    told what to become. Everything that can be done before is done; it has our user until then,
    so that no program can touch it."""

    def __init__(self) -> None:
        theirs: list[int] = []
        self.ours: list[int] = []
        try:
            lay_pipes(self.ours, theirs, False, False, True, True, True)  # order, 0, 1, 2, trouble
            for fd in self.ours[1:4]:
                os.set_blocking(fd, False)
            self.pid = os.fork()
            if self.pid == 0:
                wait_for_order(theirs)
        except OSError:
            self.close()
            raise
        finally:
            for fd in theirs:
                os.close(fd)

    def take(self, *which: int) -> list[int]:
        """Pipes that are somebody else's to close from now on."""
        taken = [self.ours[each] for each in which]
        self.ours = [fd for fd in self.ours if fd not in taken]
        return taken

    def send(self, text: bytes) -> None:
        """Raises OSError when it is gone."""
        view = memoryview(text)
        while view:
            view = view[os.write(self.ours[0], view) :]
        os.close(self.ours.pop(0))

    def close(self) -> None:
        """Without its pipes it ends."""
        while self.ours:
            os.close(self.ours.pop())


def dismiss(spares: list[Spare]) -> None:
    """They are gone when this returns."""
    for spare in spares:
        spare.close()
        os.kill(spare.pid, SIGKILL)  # quicker than its finding out by itself
    for spare in spares:
        os.waitpid(spare.pid, 0)


def wait_for_order(theirs: list[int]) -> NoReturn:
    """In the child: be ready for anything, then for one thing."""
    try:
        set_wakeup_fd(-1)
        signal(SIGCHLD, SIG_DFL)
        # Python ignores these two, and ignoring is inherited.
        signal(SIGPIPE, SIG_DFL)
        signal(SIGXFSZ, SIG_DFL)
        pthread_sigmask(SIG_SETMASK, ())
        for target, fd in enumerate(theirs[1:4]):
            os.dup2(fd, target)
        line = fcntl.fcntl(theirs[0], fcntl.F_DUPFD_CLOEXEC, BEYOND)
        trouble = fcntl.fcntl(theirs[4], fcntl.F_DUPFD_CLOEXEC, BEYOND)
        os.closerange(3, line)
        os.closerange(line + 1, trouble)
        os.closerange(trouble + 1, 4096)
        os.setsid()
        os.umask(0o022)
        bar_power()
        text = b""
        while block := os.read(line, 1 << 20):
            text += block
        if text:  # without any, nobody needs it any more
            order, _, terminal = text.partition(b"\n")
            become(decode(order), terminal.decode(), trouble)
    finally:
        os._exit(127)


def spawn(order: Order, text: bytes, spare: Spare | None) -> Process:
    """Let a child become a program; `text` is the order as it came. Raises OSError when that
    cannot be run."""
    if order.get("rows") is not None:
        return spawn_on_terminal(order, text, spare)
    child = hand_out(text, spare)
    try:
        heed(child)
        return Process.on_pipes(order, child.pid, child.take(0, 1, 2))
    finally:
        child.close()


def spawn_on_terminal(order: Order, text: bytes, spare: Spare | None) -> Process:
    master, slave = os.openpty()
    try:
        set_size(slave, order["rows"], order["columns"])
        if os.getuid() == 0:
            os.fchown(slave, USER, USER)
        child = hand_out(text + b"\n" + os.ttyname(slave).encode(), spare)
        try:
            heed(child)
        finally:
            child.close()
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    os.set_blocking(master, False)
    process = Process(order["id"], child.pid, order["window"])
    process.terminal = process.input = master
    process.outputs = {master: "stdout"}
    return process


def hand_out(text: bytes, spare: Spare | None) -> Spare:
    """The child that now becomes the program: the one that waited, or a new one."""
    for child in (spare, None):
        child = child or Spare()
        try:
            child.send(text)
            return child
        except OSError:
            child.close()  # somebody ended it; a new one is there for sure
    raise OSError(errno.EAGAIN, "no process can be started")


def heed(child: Spare) -> None:
    """Wait until it is the program. Raises OSError with what kept it from that."""
    trouble = os.read(child.ours[-1], 4096)
    if trouble:
        os.waitpid(child.pid, 0)
        number, _, where = trouble.decode("utf-8", "replace").partition(" ")
        raise OSError(int(number), os.strerror(int(number)), where or None)


def become(order: Order, terminal: str, trouble: int) -> NoReturn:
    """In the child: give up all power, then be the program."""
    where = ""
    try:
        for name, limit in order.get("limits", {}).items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
        be_user()
        if terminal:
            stream = os.open(terminal, os.O_RDWR)
            fcntl.ioctl(stream, termios.TIOCSCTTY, 0)
            for target in range(3):
                os.dup2(stream, target)
            os.close(stream)
        elif not order.get("stdin", True):
            nothing = os.open("/dev/null", os.O_RDONLY)
            os.dup2(nothing, 0)
            os.close(nothing)
        where = order.get("cwd") or "/"
        os.chdir(where)
        if order.get("offline"):
            # Only here: most sandboxes are not.
            from holdfast.sandbox.agent.offline import go_offline

            where = "offline"
            go_offline()
        if "call" in order:
            os.close(trouble)
            if order["call"] == "switch":
                # Only here: what it needs would make every agent begin later.
                from holdfast.sandbox.agent.switch import switch

                switch(order["path"])
            file_verb(order)
        where = order["argv"][0]
        os.execvpe(order["argv"][0], order["argv"], order["env"])
    except OSError as error:
        os.write(trouble, f"{error.errno} {where}".encode())
    except Exception as error:  # noqa: BLE001  told to the parent, which is us
        os.write(trouble, f"{errno.EINVAL} {type(error).__name__}".encode())
    os._exit(127)


def bar_power() -> None:
    """No program of this child's can get any capability, whatever it executes."""
    if os.getuid() == 0:
        for capability in range(LAST_CAPABILITY + 1):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
                break  # beyond the last one that this kernel knows
        os.setgroups([])
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)  # as a user namespace's owner
    gain_no_power()


def gain_no_power() -> None:
    """Not by executing anything."""
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def be_user() -> None:
    """Another user, and with it no capabilities."""
    if os.getuid() == 0:
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)


def set_size(terminal: int, rows: int, columns: int) -> None:
    termios.tcsetwinsize(terminal, (rows, columns))


def may_be_looked_at(yes: bool) -> None:
    """Whether others of our user, and our namespace's root, may look into our memory."""
    libc.prctl(PR_SET_DUMPABLE, int(yes), 0, 0, 0)


def keep_orphans() -> None:
    """Be the parent of orphans also where we are not the first process."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
