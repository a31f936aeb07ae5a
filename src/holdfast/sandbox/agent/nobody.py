"""Programs that are begun without a copy of the agent, and are nobody before they begin.

A forked child of ours is the copy of an interpreter, and in gVisor it takes longer to become a
program, even one that waited for that, than most small programs run. So a child takes its few steps
in our memory. The kernel judges by the user of our first thread who may end us, and wakes it up for
signals: it steps aside, and one that has nothing but a child's end to hear of does the work.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from _thread import allocate_lock, start_new_thread

from holdfast.sandbox.agent import USER
from holdfast.sandbox.agent.children import Process, bar_power, lay_pipes
from holdfast.sandbox.agent.small import (
    SIG_BLOCK,
    SIG_DFL,
    SIG_UNBLOCK,
    SIGCHLD,
    SIGPIPE,
    SIGXFSZ,
    TYPE_CHECKING,
    pthread_sigmask,
    signal,
    valid_signals,
)
from holdfast.sandbox.agent.steps import Beginner, Steps, known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn

    from holdfast.sandbox.agent.small import Order

    Streams = list[int]
    Copy = Callable[[Order, Streams], int | None]


def wanted() -> bool:
    """Whether the engine says that forks are dear, and they can be done without here."""
    return os.environ.get("FORKS") == "dear" and known()


def step_aside(go_on: Callable[[], NoReturn]) -> NoReturn:
    """Let another thread do all that is to be done from here on."""
    pthread_sigmask(SIG_BLOCK, valid_signals())
    # Ignoring would be inherited. Blocked they do not come, and calls fail as if ignored.
    for number in (SIGPIPE, SIGXFSZ):
        signal(number, SIG_DFL)

    def run() -> None:
        try:
            pthread_sigmask(SIG_UNBLOCK, {SIGCHLD})
            go_on()
        except BaseException:  # noqa: BLE001  nobody else would end the agent
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(70)

    start_new_thread(run, ())
    for_good = allocate_lock()
    for_good.acquire()
    while True:
        for_good.acquire()


def can_begin(order: Order) -> bool:
    """Whether a program needs nothing that only a child of ours can do for it."""
    return not ("call" in order or order.get("rows") is not None or order.get("offline"))


class Nobody:
    """Begins programs in the thread that makes it, which has no power to pass on from then on."""

    def __init__(self) -> None:
        bar_power()
        os.umask(0o022)
        self._beginner = Beginner()
        self._limits: dict[str, int] = {}

    def begin(self, order: Order, copy: Copy | None = None) -> Process:
        """With a `copy`, as one if it can be had. Raises OSError when it cannot be run."""
        ours: Streams = []
        theirs: Streams = []
        try:
            if order.get("stdin", True):
                lay_pipes(ours, theirs, False)
            else:
                theirs.append(os.open("/dev/null", os.O_RDONLY))
            lay_pipes(ours, theirs, True, True)
            for fd in ours:
                os.set_blocking(fd, False)
            pid = copy(order, theirs) if copy is not None else None
            if pid is None:
                pid = self.launch(order, theirs)
        except OSError:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        return Process.on_pipes(order, pid, ours)

    def launch(self, order: Order, streams: Streams) -> int:
        """The process of a program that has these for its first descriptors. Raises OSError."""
        try:
            self._limit(order.get("limits", {}))
            return self._first_that_runs(order, streams)
        except OSError:
            raise
        except Exception as error:  # one program cannot be begun; others run
            raise OSError(errno.EINVAL, type(error).__name__) from error

    def _first_that_runs(self, order: Order, streams: Streams) -> int:
        argv, environ, folder = order["argv"], order["env"], order.get("cwd") or "/"
        missing = failed = None
        for path in candidates(argv[0], environ, folder):
            steps = Steps()
            steps.streams(*streams)
            steps.lead()
            steps.be(USER)
            steps.go_to(folder)
            steps.execute(path, argv, environ)
            try:
                return self._beginner.begin(steps)
            except (FileNotFoundError, NotADirectoryError) as error:
                missing = error
            except OSError as error:
                failed = failed or error
        raise failed or missing or OSError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])

    def _limit(self, limits: dict[str, int]) -> None:
        """They are ours, too; we need less, and may raise them again."""
        if limits != self._limits:
            for name, limit in limits.items():
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
            self._limits = limits


def candidates(name: str, environ: dict[str, str], folder: str) -> Iterator[str]:
    """Where a program may be, as `execvpe` looks for it in a folder."""
    if "/" in name:
        yield name
        return
    for each in os.get_exec_path(environ):
        path = os.path.join(folder, each, name)
        if os.path.lexists(path):  # it takes a hundredth of what trying would
            yield path
