"""Programs that are begun by somebody who is nobody then: nothing of the agent is copied for them.

A forked child of ours is the copy of an interpreter, and in gVisor it takes longer to become a
program, even one that waited for that, than most small programs run. `posix_spawn` copies nothing,
but its child does nothing on the way either: what the program is to be, whoever begins it must be.
The kernel keeps users by thread. So our thread becomes the program's user, begins it, and is root
again. It is not our first one, by whose user the kernel judges who may end us: that steps aside.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from _signal import SIG_BLOCK, pthread_sigmask  # type: ignore[import-not-found]
from _thread import allocate_lock, start_new_thread

from holdfast.sandbox.agent import USER
from holdfast.sandbox.agent.children import Process, bar_power, lay_pipes, libc
from holdfast.sandbox.agent.small import SIGCHLD, SIGPIPE, SIGXFSZ, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn

    from holdfast.sandbox.agent.small import Order

    Streams = list[int]

# Of one thread; the library's own functions change all of them.
SETRESUID, SETRESGID = {"x86_64": (117, 119), "aarch64": (147, 149)}.get(os.uname().machine, (0, 0))


def wanted() -> bool:
    """Whether the engine says that forks are dear, and users can be changed here."""
    return os.environ.get("FORKS") == "dear" and SETRESUID != 0


def step_aside(go_on: Callable[[], NoReturn]) -> NoReturn:
    """Let another thread do all that is to be done from here on."""

    def run() -> None:
        try:
            go_on()
        except BaseException:  # noqa: BLE001  nobody else would end the agent
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(70)

    start_new_thread(run, ())
    pthread_sigmask(SIG_BLOCK, {SIGCHLD})  # or it would be woken up for each
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
        self._limits: dict[str, int] = {}

    def begin(self, order: Order) -> Process:
        """Raises OSError when it cannot be run."""
        ours: Streams = []
        theirs: Streams = []
        try:
            lay_pipes(ours, theirs, False, True, True)
            for fd in ours:
                os.set_blocking(fd, False)
            pid = self._begin(order, theirs)
        except OSError:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        return Process.on_pipes(order, pid, ours)

    def _begin(self, order: Order, streams: Streams) -> int:
        try:
            self._limit(order.get("limits", {}))
            be(USER)
            os.chdir(order.get("cwd") or "/")
            return spawned(order, streams)
        except OSError:
            raise
        except Exception as error:  # one program cannot be begun; others run
            raise OSError(errno.EINVAL, type(error).__name__) from error
        finally:
            be(0)
            os.chdir("/")

    def _limit(self, limits: dict[str, int]) -> None:
        """They are ours, too; we need less, and may raise them again."""
        if limits != self._limits:
            for name, limit in limits.items():
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
            self._limits = limits


def be(user: int) -> None:
    """This thread only. Root can be had back, by us: a program has nothing left of that."""
    for call in (SETRESUID, SETRESGID) if user == 0 else (SETRESGID, SETRESUID):
        if libc.syscall(call, user, user, 0):
            raise OSError(errno.EPERM, "the agent cannot change users")


def spawned(order: Order, streams: Streams) -> int:
    argv, environ = order["argv"], order["env"]
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(streams)
    ]
    if not order.get("stdin", True):
        actions[0] = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
    missing = failed = None
    for path in candidates(argv[0], environ):
        try:
            return os.posix_spawn(
                path,
                argv,
                environ,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=(SIGPIPE, SIGXFSZ),  # Python ignores these two, and that is inherited
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            missing = error
        except OSError as error:
            failed = failed or error
    number = (failed or missing or OSError(errno.ENOENT, "")).errno
    raise OSError(number, os.strerror(number or 0), argv[0])


def candidates(name: str, environ: dict[str, str]) -> Iterator[str]:
    """Where a program may be, as `execvpe` looks for it."""
    if "/" in name:
        yield name
        return
    for folder in os.get_exec_path(environ):
        path = f"{folder}/{name}"
        if os.path.lexists(path):  # it takes a hundredth of what trying would
            yield path
