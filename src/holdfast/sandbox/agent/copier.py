"""Executions of Python that begin as copies of an interpreter that waits.

Where forks are dear an interpreter takes longer to begin than most code runs, and a copy of one is
there in a fraction of that. The one that waits is no more to be trusted than other programs, as
whose user it runs: what it says is checked, nobody waits for it long, and whatever is not as it
should be ends it. Then code is run as always, and never twice: whoever runs it has the ticket.
"""

from __future__ import annotations

import errno
import os
import sys
from select import EPOLLIN, POLLIN, poll

from holdfast.sandbox.agent.small import SIGKILL, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from select import epoll

    from holdfast.sandbox.agent.small import Order

    Streams = list[int]
    # Begins a program with these descriptors; raises OSError.
    Launch = Callable[[Order, Streams], int]
    Kind = tuple[object, ...]

ANSWER_SECONDS = 2.0  # until one that does not speak is given up
LONGEST = 1 << 16  # bytes of an order; longer ones are begun as always
FEWEST_PROCESSES = 8  # of a sandbox that has one to spare
FAULTS = 3  # after so many that were not to be trusted there is none any more
EACH = "HOLDFAST_REQUEST_ID"  # the variable that is another in every execution
LINE = "exec(compile(open({!r}).read(), '<holdfast>', 'exec'), {{}})"
WORDS = {b"ready": 0, b"began": 1, b"ended": 2, b"cannot": 0, b"stale": 0}  # with so many numbers


class Untrue(Exception):
    """It says what it cannot say, or nothing at all."""


class Gone(Exception):
    """It has ended."""


def kind_of(order: Order) -> Kind:
    """What must be the same for a copy to be what was asked for."""
    program, environ = order["argv"][0], order["env"]
    if "/" not in program:
        folders = (os.path.join("/", each, program) for each in os.get_exec_path(environ))
        program = next(filter(os.path.lexists, folders), program)
    variables = frozenset(item for item in environ.items() if item[0] != EACH)
    limits = frozenset(order.get("limits", {}).items())
    return (program, *_version(program), *order["argv"][:-2], variables, limits)


def _version(program: str) -> tuple[int, ...]:
    """By what a program is told from others that had the same name."""
    try:
        seen = os.stat(program)
    except OSError:
        return ()
    return seen.st_dev, seen.st_ino, seen.st_mtime_ns, seen.st_size


def suits(order: Order) -> bool:
    """Whether an order is for code that an interpreter was given as an argument, and nothing that
    only a process of its own could have."""
    return (
        bool(order.get("warm"))
        and order["argv"][-2:-1] == ["-c"]
        and order.get("limits", {}).get("NPROC", FEWEST_PROCESSES) >= FEWEST_PROCESSES
        # Else which interpreter it is depends on the folder that it is begun in.
        and all(each.startswith("/") for each in os.get_exec_path(order["env"]))
    )


class Original:
    """An interpreter that waits, or begins to; with the copies of it that run."""

    def __init__(self, order: Order, launch: Launch) -> None:
        """Raises OSError."""
        # Only here: without it there is no need of it.
        from _socket import AF_UNIX, SOCK_SEQPACKET, socketpair

        self.order = order
        self.kind = kind_of(order)
        self.ready = False
        self.copies: set[int] = set()
        self.link, other = socketpair(AF_UNIX, SOCK_SEQPACKET)
        self.link.setblocking(False)
        self._soon = poll()
        self._soon.register(self.link.fileno(), POLLIN)
        source, nothing = os.pipe()
        self.said, sink = os.pipe()  # what it says as it begins, which copies would not
        os.set_blocking(self.said, False)
        os.close(nothing)
        place = os.path.join(os.path.dirname(__file__), "zygote.py")
        argv = [*order["argv"][:-1], LINE.format(place)]
        try:
            told = {**order, "argv": argv, "cwd": "/"}
            self.pid = launch(told, [source, sink, sink, other.fileno()])
        except OSError:
            self.close()
            raise
        finally:
            other.close()
            for fd in (source, sink):
                os.close(fd)

    def close(self) -> None:
        self.link.close()
        if self.said >= 0:
            os.close(self.said)
            self.said = -1

    def order_copy(self, text: bytes, fds: Streams) -> None:
        """Raises OSError."""
        from _socket import SCM_RIGHTS, SOL_SOCKET

        packed = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
        self.link.sendmsg([text], [(SOL_SOCKET, SCM_RIGHTS, packed)])

    def answer(self) -> tuple[bytes, list[int]]:
        """What it says next, soon. Raises BlockingIOError when it does not, Gone and Untrue."""
        self._soon.poll(ANSWER_SECONDS * 1000)
        return self.next()

    def next(self) -> tuple[bytes, list[int]]:
        """What it has said. Raises BlockingIOError when that is nothing, Gone and Untrue."""
        message = self.link.recv(64)
        if not message:
            raise Gone
        try:
            word, *rest = message.split()
            numbers = [int(each) for each in rest]
        except ValueError as error:
            raise Untrue from error
        if WORDS.get(word) != len(numbers):
            raise Untrue
        return word, numbers

    def silent(self) -> bool:
        """Whether it has said nothing by itself."""
        try:
            return not os.read(self.said, 1)
        except BlockingIOError:
            return True


class Copier:
    """Has an interpreter waiting, and copies of it made."""

    def __init__(self, launch: Launch, poll: epoll, over: Callable[[int, int], None]) -> None:
        """`over` is called with the number and the status of each copy that has ended."""
        self._launch = launch
        self._poll = poll
        self._over = over
        self._original: Original | None = None
        self._wanted: Order | None = None  # what the next interpreter is to wait for
        self._missed: Kind | None = None
        self._useless: Kind | None = None  # one of these cannot be copied
        self._ending: dict[int, Original] = {}
        self._faults = 0

    # -- one that waits

    @property
    def missing(self) -> bool:
        """Whether one is to be begun when there is nothing else to do."""
        return self._wanted is not None

    def replenish(self) -> None:
        """Begin the one that is wanted; it says when it is ready."""
        self.dismiss()
        order, self._wanted = self._wanted, None
        if order is None:
            return
        try:
            self._original = Original(order, self._launch)
        except OSError:
            return  # there is no room for one now
        self._poll.register(self._original.link.fileno(), EPOLLIN)

    def dismiss(self) -> None:
        """Let the one that waits end; it is gone when this returns, and wanted again."""
        original = self._original
        if original is None:
            return
        self._wanted = self._wanted or original.order
        self._let_go(original)
        os.waitpid(original.pid, 0)
        self.reaped(original.pid)
        try:
            while True:
                os.waitpid(-original.pid, 0)  # its group: what waited with it
        except ChildProcessError:
            return

    def _want(self, order: Order, kind: Kind) -> None:
        """Whether another takes the place of one that waits is decided by the second order that it
        does not fit: they may come in turns."""
        if self._faults >= FAULTS or kind == self._useless:
            return
        if self._original is None or (self._original.kind != kind and self._missed == kind):
            self._wanted = order
        self._missed = kind

    # -- copies

    def copy(self, order: Order, streams: Streams) -> int | None:
        """The process that runs the code of an order, or None when it is to be begun as always.
        Raises OSError when it may have begun, and cannot be told of."""
        kind = kind_of(order)
        original = self._original
        if original is None or not original.ready or original.kind != kind:
            self._want(order, kind)
            return None
        self._missed = None
        text = packed(order, original.order["env"])
        if text is None:
            return None
        ticket, write = os.pipe()
        os.write(write, b"1")
        os.close(write)
        try:
            pid = self._ask(original, text, [*streams, ticket])
            if pid is None and not os.read(ticket, 1):
                raise OSError(errno.ECHILD, "it was ended as it began")
            return pid
        finally:
            os.close(ticket)

    def _ask(self, original: Original, text: bytes, fds: Streams) -> int | None:
        """None unless it says that there is a copy. It says one of four words, and before at most
        as many as it has copies that end."""
        try:
            original.order_copy(text, fds)
            while True:
                word, numbers = original.answer()
                if word == b"ended":
                    self._ended(original, *numbers)
                elif word == b"began":
                    [pid] = numbers
                    if pid <= 1 or pid in {os.getpgrp(), original.pid, *original.copies}:
                        raise Untrue
                    original.copies.add(pid)
                    return pid
                elif word == b"cannot":
                    return None
                elif word == b"stale":
                    self._let_go(original)
                    self._wanted = original.order
                    return None
                else:
                    raise Untrue
        except (Gone, ConnectionError):
            self._let_go(original)
        except (OSError, Untrue):
            self._faults += 1
            self._let_go(original)
        return None

    # -- what it says by itself

    @property
    def fd(self) -> int:
        return self._original.link.fileno() if self._original is not None else -1

    def hear(self) -> None:
        """Take what it has said."""
        original = self._original
        while original is not None and original is self._original:
            try:
                word, numbers = original.next()
                if word == b"ended":
                    self._ended(original, *numbers)
                elif word == b"ready" and not original.ready:
                    self._ready(original)
                else:
                    raise Untrue
            except BlockingIOError:
                return
            except (OSError, Gone, Untrue):
                if not original.ready:
                    self._useless = original.kind  # it does not want to wait
                self._let_go(original)

    def _ready(self, original: Original) -> None:
        if not original.silent():
            raise Untrue
        os.close(original.said)
        original.said = -1
        original.ready = True

    def _ended(self, original: Original, pid: int, status: int) -> None:
        real = 0 <= status <= 0xFFFF and (os.WIFEXITED(status) or os.WIFSIGNALED(status))
        if pid not in original.copies or not real:
            raise Untrue
        original.copies.remove(pid)
        self._over(pid, status)

    # -- its end

    def _let_go(self, original: Original) -> None:
        """It ends, and its copies are ours from then on."""
        self._forget(original)
        self._ending[original.pid] = original
        try:
            # With the copies that wait, which are of its group, a number that is its own until it
            # is reaped.
            os.killpg(original.pid, SIGKILL)
        except ProcessLookupError:
            return  # it was quicker

    def _forget(self, original: Original) -> None:
        self._original = None
        self._poll.unregister(original.link.fileno())

    def stopped(self, pid: int) -> None:
        """A process stands still. If it has copies, nobody would hear of their ends."""
        if self._original is not None and self._original.pid == pid:
            self._faults += 1
            self._let_go(self._original)

    def reaped(self, pid: int) -> None:
        """A process has ended. If it had copies, they are ours now, and so are their ends, but for
        those that it has told us of; where it collected one and did not say so, that is lost."""
        original = self._ending.pop(pid, None)
        if original is None and self._original is not None and self._original.pid == pid:
            original = self._original
            if not original.ready:
                self._useless = original.kind  # it did not want to wait
            self._forget(original)
        if original is None:
            return
        self._last_words(original)
        original.close()
        for copy in original.copies:
            try:
                os.kill(copy, 0)
            except ProcessLookupError:
                self._over(copy, SIGKILL)

    def _last_words(self, original: Original) -> None:
        try:
            while True:
                word, numbers = original.next()
                if word == b"ended":
                    self._ended(original, *numbers)
        except (OSError, Gone, Untrue):
            return  # that was all


def packed(order: Order, environ: dict[str, str]) -> bytes | None:
    """An order as it is told: code, folder, and what is other in the environment; None when it is
    nothing that can be told so."""
    given = order["env"].get(EACH)
    changes = [] if given == environ.get(EACH) else [EACH if given is None else f"{EACH}={given}"]
    try:
        code = order["argv"][-1].encode()
        words = [os.fsencode(each) for each in (order.get("cwd") or "/", *changes)]
    except UnicodeEncodeError:
        return None
    text = b"\0".join((code, *words))
    fits = len(text) <= LONGEST and text.count(b"\0") == len(words)
    return text if fits else None
