"""Programs that a thread begins which is nobody then: nothing of the agent is copied for them.

A forked child of ours is the copy of an interpreter, and in gVisor it takes longer to become a
program, even one that waited for that, than most small programs run. `posix_spawn` copies nothing,
but its child does nothing on the way either: what the program is to be, whoever begins it must be.
The kernel keeps users by thread. So a thread becomes the program's user, begins it, and is root
again; a thread of its own, because who may end the agent is judged by the user of its first one.
"""

from __future__ import annotations

import errno
import os
import resource
from _queue import SimpleQueue
from _thread import start_new_thread

from holdfast.sandbox.agent import USER
from holdfast.sandbox.agent.children import Process, bar_power, libc
from holdfast.sandbox.agent.small import SIGPIPE, SIGXFSZ, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.sandbox.agent.small import Order

    Streams = list[int]
    Asked = tuple[Order, Streams]

# Of one thread; the library's own functions change all of them.
SETRESUID, SETRESGID = {"x86_64": (117, 119), "aarch64": (147, 149)}.get(os.uname().machine, (0, 0))


def can_begin(order: Order) -> bool:
    """Whether a program needs nothing that only a child of ours can do for it."""
    return not ("call" in order or order.get("rows") is not None or order.get("offline"))


class Nobody:
    """The thread."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[Asked] = SimpleQueue()
        self._answers: SimpleQueue[int | OSError] = SimpleQueue()
        self._limits: dict[str, int] = {}
        start_new_thread(self._serve, ())

    def begin(self, order: Order) -> Process:
        """Raises OSError when it cannot be run."""
        ours: Streams = []
        theirs: Streams = []
        try:
            for ours_reads in (False, True, True):
                ends = os.pipe()
                ours.append(ends[0] if ours_reads else ends[1])
                theirs.append(ends[1] if ours_reads else ends[0])
                os.set_blocking(ours[-1], False)
            self._asked.put((order, theirs))
            answer = self._answers.get()
            if isinstance(answer, OSError):
                raise answer
        except OSError:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        return Process.on_pipes(order, answer, ours)

    # -- in the thread

    def _serve(self) -> None:
        bar_power()
        os.umask(0o022)
        while True:
            order, streams = self._asked.get()
            try:
                answer: int | OSError = self._begin(order, streams)
            except OSError as error:
                answer = error
            except Exception as error:  # noqa: BLE001  told to whoever asked
                answer = OSError(errno.EINVAL, type(error).__name__)
            self._answers.put(answer)

    def _begin(self, order: Order, streams: Streams) -> int:
        limits = order.get("limits", {})
        if limits != self._limits:
            for name, limit in limits.items():
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
            self._limits = limits
        be(USER)
        try:
            os.chdir(order.get("cwd") or "/")
            return spawned(order, streams)
        finally:
            be(0)
            os.chdir("/")


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
