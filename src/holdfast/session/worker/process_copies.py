"""Capturing in a copy of the process: the session waits only until the copy is made.

The copy runs nothing but the capture, without the session's streams, under a deadline, and
never returns. Only a process without other threads can be copied, and the copy is worth its
time only when the capture takes long.
"""

from __future__ import annotations

import gc
import mmap
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

import msgspec

from holdfast.protocol.session_messages import (
    HELD,
    CheckpointMessage,
    ErrorMessage,
    Message,
    frame,
)
from holdfast.session import layout
from holdfast.session.worker import budget, forks
from holdfast.session.worker.blocks import Blocks, Sent
from holdfast.session.worker.handing import Handed, messages
from holdfast.session.worker.kinds import sockets
from holdfast.session.worker.kinds.descriptors import borrowed, descriptors
from holdfast.session.worker.labels import Labels, LabelState
from holdfast.session.worker.memory.pagemap import Runs
from holdfast.session.worker.memory.tracker import Tracker
from holdfast.session.worker.parent import end_with
from holdfast.session.worker.reasons import reason_of
from holdfast.session.worker.threads import alone

if TYPE_CHECKING:  # with cloudpickle: 10 ms
    from holdfast.session.worker.capture import Capture
    from holdfast.session.worker.captured import Captured

LONG = 0.05  # seconds: a shorter capture is not worth a copy
LARGE = 128 << 20  # bytes of objects: the first capture of such a process is made in a copy
MUCH = 16 << 20  # bytes: more memory than that is handed over by a copy, not copied itself
MOST = 2  # copies at once; each may come to need as much memory as the session

_GRACE = 5.0  # seconds
_LONGEST = 86_400.0  # seconds of a capture that has no limit
_MOMENT = 1.0  # seconds


class _Learnt(msgspec.Struct, array_like=True):
    """What a copy tells the session afterwards."""

    request_id: int
    seconds: float
    labels: LabelState
    places: list[tuple[int, int, str]]  # of the memory that it handed over
    writes: list[Runs]  # its own, to each of these
    blocks: list[Sent]


class ProcessCopies:
    """Decides whether a capture happens in one of them, and knows what the last one was like."""

    def __init__(
        self,
        labels: Labels,
        tracker: Tracker,
        blocks: Blocks | None = None,
        reads: bool = False,
    ) -> None:
        """`reads`: this very process reads what its copies send, so they end with it."""
        self._reads = reads
        self._labels = labels
        self._tracker = tracker
        self._blocks = blocks or Blocks()
        self._seconds: float | None = None  # that the last capture took
        self._children: list[int] = []
        self._notes = -1  # the file where the last copy leaves what it learnt
        self._held: frozenset[str] = frozenset()  # types that copies stood still at
        self._in_place = False  # whether one stood still, and at no type
        # The type that the last copy was at, in memory that it shares with this process.
        self.at = memoryview(mmap.mmap(-1, 8)).cast("Q")

    @property
    def held(self) -> frozenset[str]:
        """Types that copies stood still at."""
        return self._held

    def took(self, seconds: float, met: Iterable[type] = ()) -> None:
        """The last capture was made in place, and met objects of these types."""
        self._seconds = seconds
        if self._held:  # as long as there are such objects
            self._held &= {forks.name_of(kind) for kind in met}

    def stood_still(self) -> None:
        """The last copy did not come to an end because of what it was at."""
        name = _type_name(self.at[0])
        if name is None:
            self._in_place = True
        else:
            self._held |= {name}

    def held_back(self, namespace: Mapping[str, object]) -> bool:
        """Whether a copy would stand still, as far as is known."""
        return bool(self._held) or self._in_place or forks.holds(namespace)

    def learn(self) -> None:
        """Take what the last copy left, if it has come so far."""
        learnt = self._left()
        if learnt is not None:
            self._forget()
            self._seconds = learnt.seconds
            self._labels.take(learnt.labels)
            self._tracker.captured(learnt.request_id, learnt.places)
            for (address, size, _), runs in zip(learnt.places, learnt.writes, strict=True):
                self._tracker.differs(learnt.request_id, (address, size), runs)
            self._blocks.captured(learnt.request_id, learnt.blocks, self._tracker.base)

    def wanted(self, arrays: int) -> bool:
        """Whether the next capture should happen in a copy. `arrays`: bytes of plain memory."""
        long = _is_large(arrays) if self._seconds is None else self._seconds >= LONG
        return long and self.possible()

    def possible(self) -> bool:
        """Whether the process can be copied now."""
        self._children = [child for child in self._children if not _has_ended(child)]
        if not alone() or len(self._children) >= MOST:
            return False
        torch = sys.modules.get("torch")
        return not (torch is not None and torch.cuda.is_initialized())  # a GPU is not copied

    def begin(
        self, capture: Capture, environment: layout.Environment, asked: CheckpointMessage
    ) -> Handed:
        """Capture in a copy; what can be read from its file are the messages of the capture."""
        self._forget()
        capture.catch()
        self.at[0] = 0
        self._notes = os.memfd_create("holdfast-notes", os.MFD_CLOEXEC)
        handed = self._copy(
            asked,
            lambda write: _capture(
                capture, environment, asked, write, self._notes, self._labels, self._tracker
            ),
        )
        self._labels.back()
        return handed

    def hand_over(self, captured: Captured, asked: CheckpointMessage) -> Handed:
        """Send a capture from a copy, as it is now, while the session goes on."""
        return self._copy(asked, lambda write: _send_all(captured, asked, write))

    def _copy(self, asked: CheckpointMessage, work: Callable[[int], None]) -> Handed:
        read, write = os.pipe()
        forks.end_teams()
        parent = os.getpid()
        try:
            child = os.fork()
        except BaseException:
            os.close(read)
            os.close(write)
            raise
        if child == 0:
            os.close(read)  # or it would wait for ever for a host that has gone
            _work(asked, lambda: work(write), write, parent, self._reads)
        os.close(write)
        self._children.append(child)
        return Handed(read, child)

    def _left(self) -> _Learnt | None:
        if self._notes < 0:
            return None
        data = os.pread(self._notes, os.fstat(self._notes).st_size, 0)
        try:
            return msgspec.msgpack.decode(data, type=_Learnt)
        except msgspec.MsgspecError:
            return None  # not yet

    def restored(self) -> None:
        """What the last copy knew is about a namespace that is no more."""
        self._forget()

    def _forget(self) -> None:
        if self._notes >= 0:
            os.close(self._notes)
            self._notes = -1


def _type_name(identity: int) -> str | None:
    """The type with this id."""
    waiting, seen = [object], set[int]()
    while waiting and identity:
        kind = waiting.pop()
        if id(kind) == identity:
            return forks.name_of(kind)
        if id(kind) not in seen:
            seen.add(id(kind))
            waiting += type.__subclasses__(kind)
    return None


def _is_large(arrays: int) -> bool:
    """Whether a first capture is likely to take long, by the memory that is not in arrays."""
    with open("/proc/self/statm", "rb") as file:  # not `pathlib`, which takes as long to import
        pages = int(file.read().split()[1])
    return pages * mmap.PAGESIZE - arrays > LARGE


def _has_ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True  # the user's code waited for it


def _work(
    asked: CheckpointMessage, work: Callable[[], None], write: int, parent: int, reads: bool
) -> NoReturn:
    """All that the copy does."""
    try:
        gc.disable()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        # The host gives up first, and says so; this only ends what nobody waits for.
        most = asked.timeout + _GRACE if asked.timeout else _LONGEST
        signal.setitimer(signal.ITIMER_REAL, most)
        if reads:
            if not end_with(parent):
                os._exit(0)
        else:
            # A session that dies does not take the capture with it, but there must be a host.
            signal.signal(signal.SIGUSR1, lambda number, frame: _end_without_host(write))
            if not end_with(parent, signal.SIGUSR1):
                _end_without_host(write)
        null = os.open(os.devnull, os.O_RDWR)
        from holdfast.session.worker.kinds.catching import ends  # with cloudpickle

        others = [fd for fd, _ in ends() if fd != write]
        for fd in (0, 1, 2, *others, *_leading()):
            os.dup2(null, fd)
        work()
    finally:
        os._exit(0)


def _end_without_host(write: int) -> None:
    """End this process if nobody is there to read its capture. A host that has just been killed
    may take a moment to close its end."""
    waiting = select.poll()
    waiting.register(write, 0)  # it is told that the other end is closed, and nothing else
    if waiting.poll(_MOMENT * 1000):
        os._exit(0)


def _leading() -> Iterator[int]:
    """Sockets that are bound or connected: what takes this process's place needs the addresses, and
    whoever is at the other end sees when the session closes its own."""
    for fd, about in descriptors():
        if not stat.S_ISSOCK(about.st_mode):
            continue
        with borrowed(fd) as found:
            where = sockets.leads(found)
        if where:
            sockets.given_up[fd] = where
            yield fd


def _capture(
    capture: Capture,
    environment: layout.Environment,
    asked: CheckpointMessage,
    write: int,
    notes: int,
    labels: Labels,
    tracker: Tracker,
) -> None:
    request_id = asked.request_id
    started, me = time.perf_counter(), os.getpid()
    try:
        captured = capture.run(environment, apart=True)
    except forks.Held as error:
        _send(write, ErrorMessage(request_id=request_id, error_type=HELD, message=str(error)))
        return
    except BaseException as error:  # noqa: BLE001  # user code; the host is told
        kind, reason = type(error).__name__, reason_of(error)
        message = ErrorMessage(request_id=request_id, error_type=kind, message=reason)
        _send(write, budget.explained(message, error))
        return
    if os.getpid() != me:
        return  # user code forked while it was captured: one of them is enough
    # Before the last message: the next capture may be asked for as soon as that has arrived.
    seconds = time.perf_counter() - started
    told = [(each, tracker.own_writes(each[:2])) for each in captured.places()]
    places = [each for each, runs in told if runs is not None]
    writes = [runs for _, runs in told if runs is not None]
    learnt = _Learnt(request_id, seconds, labels.state(), places, writes, captured.blocks)
    os.write(notes, msgspec.msgpack.encode(learnt))
    _send_all(captured, asked, write)


def _send_all(captured: Captured, asked: CheckpointMessage, write: int) -> None:
    for message in messages(captured, asked.request_id, "lies" if asked.reads else "along"):
        _send(write, message)
    if asked.reads and captured.needed:
        # The host reads what it needs where it lies, and closes the pipe when it has it.
        waiting = select.poll()
        waiting.register(write, 0)
        waiting.poll()


def _send(write: int, message: Message) -> None:
    data = memoryview(frame(message))
    while data:
        data = data[os.write(write, data) :]
