"""A kernel's namespace as a durable session: captured beside the kernel, brought back into it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.integrations.ipython import names
from holdfast.integrations.ipython.saving import Saving
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import HoldfastError, UsageError
from holdfast.model.fault_points import fault_point
from holdfast.model.report import Report
from holdfast.model.secrets import Rule
from holdfast.model.subject import Subject
from holdfast.protocol.session_messages import CapturingMessage, CheckpointMessage, ItemReport
from holdfast.session import checks, omissions
from holdfast.session.arriving import Arriving
from holdfast.session.captured import StoodStill
from holdfast.session.checkpoints import SessionCheckpoint, Stored, report_of
from holdfast.session.history import History
from holdfast.session.mapped import Mapped
from holdfast.session.memory import can_read
from holdfast.session.settings import Settings
from holdfast.session.worker.labels import Labels
from holdfast.session.worker.memory import survey
from holdfast.session.worker.memory.overlay import Overlay
from holdfast.session.worker.memory.tracker import Tracker
from holdfast.session.worker.process_copies import ProcessCopies
from holdfast.session.worker.reasons import secret_texts
from holdfast.session.worker.workspace import Workspace
from holdfast.store import Store, retention
from holdfast.store.comparison import Diff

if TYPE_CHECKING:  # with cloudpickle
    from holdfast.session.worker.capture import Capture
    from holdfast.session.worker.handing import Handed

TIMEOUT = 120.0  # seconds for a capture, in a copy of the kernel
WINDOW = 2.0  # seconds of work that may be unsaved while cells follow one another at once
PAUSE = 0.25  # seconds without a cell, after which nobody feels what a capture costs
_LONG = 16 << 20  # bytes that take a moment to be written
_MOMENT = 0.5  # seconds that nobody minds


class Notebook:
    """One kernel and its session. Everything is called in the kernel's main thread."""

    def __init__(
        self, shell: Any, name: str, store: Store | str | None, before: Notebook | None = None
    ) -> None:
        """Nothing is owned or restored yet. `before` is the session that this kernel leaves for
        it, and knows the cells and definitions that ran. Raises UsageError and BadInput."""
        if shell.user_ns is not vars(sys.modules["__main__"]):
            raise UsageError("this shell runs inside of another program, not in __main__")
        self.subject = Subject("session", name)
        self.workspace: Workspace = before.workspace if before else Workspace()
        self.saving = Saving()
        self.saving.on_room = self._wake
        self.saving.on_stood = self._made_again
        self.window: float = before.window if before else WINDOW
        self._began: float | None = None  # when the cell did that runs, if one does
        self.owed: str | None = None  # the reason of a checkpoint that was put off
        self._first = 0  # the first of the cells that it is owed for
        self._work = 0.0  # seconds that the cells took which it is owed for
        self._timer: asyncio.TimerHandle | None = None  # until the pause is long enough for it
        self._stood = False  # whether the copy that made the last capture stood still
        self._loop: asyncio.AbstractEventLoop | None = None  # that the kernel waits for cells on
        self._size = 0  # of the last checkpoint
        self.history = History(self.subject, store, retention.DEFAULT)
        self._shell = shell
        self._labels = Labels()
        self._tracker = Tracker()
        self._copies = ProcessCopies(self._labels, self._tracker, reads=True)
        own = before._threads if before else set(threading.enumerate())
        self._threads: set[threading.Thread] = own  # the kernel's
        self._requests = 0

    # -- life ----------------------------------------------------------------------------

    def begin(self, replace: bool = False) -> Report | None:
        """Own the session, and bring it back, if this kernel has nothing that it would `replace`.

        Raises Owned and other HoldfastErrors; then nothing has begun.
        """
        self.history.own()
        head = self.history.store.head(self.subject)
        if head is None or (self.names() and not replace):
            return None
        self.workspace.watch()  # before, as only what is watched is brought back
        try:
            report = self._apply(self.history.store, head)
        except BaseException:
            self.history.disown()
            raise
        self.history.line.at = head
        self._count_on()
        return report

    def close(self) -> None:
        """The session is kept, and somebody else may go on with it."""
        self.saving.close()
        self._unwatch()
        self.history.disown()
        self.history.tidy()

    def names(self) -> dict[str, object]:
        """The user's variables, and what the cells gave (`Out`) if they gave anything."""
        hidden = self._shell.user_ns_hidden
        found = {
            name: value
            for name, value in self.workspace.namespace.items()
            if not names.is_own(name, value, hidden)
        }
        out = self._outputs()
        rule = self._rule()
        known = secret_texts(self.workspace.namespace, rule)
        if any(_is_secret(value, known, rule) for value in out.values()):
            out = {n: value for n, value in out.items() if not _is_secret(value, known, rule)}
        return {**found, "Out": out} if out else found

    # -- cells ---------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether a cell is."""
        return self._began is not None

    def cell_begins(self) -> None:
        """Nothing is captured by itself until it has ended."""
        self._began = time.perf_counter()
        self._stop_waiting()

    def cell_ends(self) -> None:
        """Count what it took: so much is lost if the kernel dies now."""
        if self._began is not None:
            self._work += time.perf_counter() - self._began
        self._began = None

    def _rule(self) -> Rule:
        return checks.rule_of(os.environ).after(self.workspace.given)

    # -- freezing ------------------------------------------------------------------------

    def checkpoint(self, reason: str) -> SessionCheckpoint:
        """Capture this very moment, and wait until it is durable."""
        try:
            return self.freeze(reason).result()
        except StoodStill:
            self._stood = True
            return self.freeze(reason).result()

    def freeze(self, reason: str) -> Future[SessionCheckpoint]:
        """Capture this very moment in a copy of the kernel; the future is the commit."""
        self.saving.room()
        return self._freeze(reason)

    def keep(self, cell: int | None = None) -> None:
        """The same, but nobody waits: it is made in the first pause between two cells, or as soon
        as more than `window` seconds of work are unsaved. In a terminal, where nothing happens
        between two cells, and in a kernel that is about to end, it is made at once.

        `cell` has just ended; without one, only what is owed is made.
        """
        with suppress(RuntimeError):  # in a terminal none runs
            self._loop = asyncio.get_running_loop()
        if cell is not None:
            self._first = self._first or cell
            several = self._first < cell
            self.owed = f"cells {self._first} to {cell}" if several else f"cell {cell}"
        loop, ends = self._loop, getattr(self._shell, "exit_now", False)
        if loop is None or ends or self._work >= self.window:
            self._keep_now()
        else:
            self._stop_waiting()
            self._timer = loop.call_later(PAUSE, self._make_up)

    def _keep_now(self) -> None:
        """What is owed; without room it is made when there is, and no cell runs."""
        assert self.owed is not None  # before the look: what arrives meanwhile wakes us
        if self.saving.room(patient=self._loop is None):
            self.saving.leave(self._freeze(self.owed))

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hurry(self) -> None:
        """Wait for no pause. It may be called in any thread."""
        self._wake()

    def settle(self) -> None:
        """Wait until all that ran is saved."""
        for _ in range(2):  # what a copy stood still at is made in place
            if self.owed is not None:
                self.saving.leave(self.freeze(self.owed))
            self.saving.settled()

    def _made_again(self, reason: str) -> None:
        """A copy stood still. Called in the thread that saves."""
        self._stood = True
        self.owed = self.owed or reason
        self._wake()

    def coming(self) -> list[str]:
        """The checkpoints that are on their way, by their reasons; small ones are waited for, and
        large ones for a moment."""
        if self.owed is not None and self._loop is not None:
            self._keep_now()
        if self.owed is None and not self.saving.long:
            self.settle()
        else:
            self.saving.settled(_MOMENT)
        return self.saving.coming + ([] if self.owed is None else [self.owed])

    @property
    def unsaved(self) -> bool:
        """Whether something will be in the store that is not yet; a running cell is in the way."""
        return (self.owed is not None and not self.running) or not self.saving.idle

    def _wake(self) -> None:
        loop = self._loop
        if self.owed is not None and loop is not None:
            with suppress(RuntimeError):  # it ends, and `close` is next
                loop.call_soon_threadsafe(self._make_up)

    def _make_up(self) -> None:
        self._timer = None
        if self.owed is not None and not self.running:
            try:
                self._keep_now()
            except HoldfastError as error:
                self.saving.failed(error)

    def _freeze(self, reason: str) -> Future[SessionCheckpoint]:
        try:
            arriving, child, memory = self._copy(reason)
        except BaseException:
            self.saving.give_back()
            raise

        def save() -> SessionCheckpoint:
            try:
                made = self.history.save(arriving, reason=reason, stage=None, save_to_disk=True)
            finally:
                arriving.close()  # else the copy would wait until it is read
                _bury(child)
            self._size = made.size_bytes
            return made

        done = self.saving.begin(save, reason, long=max(memory, self._size) > _LONG)
        self._settled()
        return done

    def _settled(self) -> None:
        """All that ran is captured."""
        self.owed, self._first = None, 0
        self._work = 0.0
        self._stop_waiting()

    def freeze_as(self, other: str) -> Checkpoint:
        """This very moment as the first checkpoint of another session. Raises Conflict."""
        subject = Subject("session", other)
        self.saving.settled()
        self.history.check_free(subject, "choose another name")
        try:
            return self._save_as(subject)
        except StoodStill:
            self._stood = True
            return self._save_as(subject)

    def _save_as(self, subject: Subject) -> Checkpoint:
        reason = f"fork of {self.subject}"
        arriving, child, _ = self._copy(reason)
        try:
            return self.history.save_as(subject, arriving, reason)
        finally:
            arriving.close()
            _bury(child)

    def _copy(self, reason: str) -> tuple[Arriving, int, int]:
        """What brings a capture, the copy that has it, and how much memory arrays have."""
        with self.workspace.at_work():
            return self._copied(reason)

    def _copied(self, reason: str) -> tuple[Arriving, int, int]:
        from holdfast.session.worker.capture import Capture

        self._requests += 1
        base = self.history.base()
        asked = CheckpointMessage(
            request_id=self._requests,
            reason=reason,
            beside=True,
            timeout=TIMEOUT,
            base=base if base <= 0 or self.history.has(base) else 0,
            reads=can_read(os.getpid()),
        )
        self.workspace.runner.count = self._shell.execution_count - 1
        self._copies.learn()
        if self._stood:
            self._stood = False
            self._copies.stood_still()
        workspace = self.workspace
        # What a thread of the user's writes between this look and the copy belongs to the next one.
        self._tracker.begin(asked.request_id, asked.base)
        places = survey.look(workspace.namespace).places
        self._tracker.watch(places)
        capture = Capture(
            workspace.namespace,
            workspace.cells,
            workspace.codes,
            workspace.definitions,
            labels=self._labels,
            tracker=self._tracker,
            names=self.names(),
            threads=self._others(),
            held=self._copies.held,
            at=self._copies.at,
            rule=self._rule(),
        )
        with warnings.catch_warnings():
            # The copy runs the capture only, in its one thread, and ends without any clean-up.
            warnings.simplefilter("ignore", DeprecationWarning)
            if self._copies.held_back(workspace.namespace):
                handed = self._in_place(capture, asked)
            else:
                handed = self._copies.begin(capture, workspace.environment(), asked)
        begun = CapturingMessage(request_id=asked.request_id, pid=handed.pid)
        arriving = Arriving(handed.file, begun, TIMEOUT, os.getpid())
        return arriving, handed.pid, sum(size for _, size in places)

    def _in_place(self, capture: Capture, asked: CheckpointMessage) -> Handed:
        """Capture here, where a copy would stand still; a copy only sends it."""
        started = time.perf_counter()
        captured = capture.run(self.workspace.environment())
        self._copies.took(time.perf_counter() - started, capture.kinds())
        self._tracker.captured(asked.request_id, captured.places())
        return self._copies.hand_over(captured, asked)

    def _others(self) -> int:
        """How many threads the user's code has started."""
        ours = ("holdfast", "ThreadPoolExecutor", "asyncio_")
        return sum(
            thread not in self._threads and not thread.name.startswith(ours)
            for thread in threading.enumerate()
        )

    def diff(self, a: str = "~1", b: str | None = None) -> Diff:
        """What changed between two checkpoints; by default from the head's parent to the head."""
        before, after = self.history.find(a)[1], self.history.find(b)[1]
        return self.history.store.diff(before.id, after.id)

    # -- bringing back -------------------------------------------------------------------

    def restore(self, reference: str | None = None) -> Report:
        """Replace everything by a checkpoint, by default the head, which follows."""
        self.settle()
        store, target = self.history.find(reference, takes_files=True)
        move = partial(self.history.move_to, store, target, trust=False)
        return self._apply(store, target, move)

    def rollback(self, to: str | None = None) -> Report:
        """Go back to before the last checkpoint, or to a given one, by a new one."""
        self.settle()
        target = self.history.rollback_target(to)
        move = partial(self.history.roll_back, target, trust=False)
        return self._apply(self.history.store, target, move)

    def _apply(
        self, store: Store, target: Checkpoint, move: Callable[[], Checkpoint] | None = None
    ) -> Report:
        """The head moves, if it is to, and the namespace follows; or neither does."""
        stored = self.history.read(store, target, trust=False)
        stored.memory.check()  # there is no next call that could tell of damage
        namespace, hidden = self.workspace.namespace, self._shell.user_ns_hidden
        own = {n: v for n, v in namespace.items() if names.is_own(n, v, hidden)}
        position = self.history.position()
        try:
            target = move() if move is not None else target
            fault_point("the head is moved")
            items, tracker = self._fill(stored)
        except BaseException as error:
            try:
                self.history.go_back(position)
            except Exception as failure:  # noqa: BLE001  # the first error is the one to raise
                error.add_note(f"the store could not be set back: {failure}")
            raise
        self._unwatch()
        self._tracker, self._copies = tracker, ProcessCopies(self._labels, tracker, reads=True)
        self.history.restored(store, target, stored, self._requests)
        self._settled()
        out = namespace.pop("Out", None)
        for name, value in {**hidden, **own}.items():
            namespace.setdefault(name, value)
        self._give_outputs(out if isinstance(out, dict) else {})
        return report_of(items)

    def _fill(self, stored: Stored) -> tuple[tuple[ItemReport, ...], Tracker]:
        """Fill the namespace with a checkpoint's; gives also what watches over its memory."""
        secrets = omissions.chosen(Settings.of({}).given(None), stored.parts)
        self._requests += 1
        # One of its own: when this fails, what the other one knows holds still.
        tracker = Tracker()
        tracker.begin(self._requests, self._requests)
        with Mapped(0, stored.memory) as mapped:
            told = {each.name: each for each in mapped.messages}
            overlay = Overlay(told, mapped.files, tracker.placed)
            tracker.maps(mapped.files)
            items = self.workspace.restore(stored.parts, secrets, self._labels, overlay=overlay)
        return items, tracker

    def _unwatch(self) -> None:
        """What is known about memory is over, and another one may watch it."""
        self._copies.restored()
        self._tracker.begin(self._requests, base=-1)

    # -- the shell's own -----------------------------------------------------------------

    def _outputs(self) -> dict[object, object]:
        out = self._shell.user_ns.get("_oh")
        return out if isinstance(out, dict) else {}

    def _give_outputs(self, out: Mapping[object, object]) -> None:
        """`Out`, `_3` and `_` as they were."""
        live = self._outputs()
        for number in live:
            self._shell.user_ns.pop(f"_{number}", None)
        live.clear()
        live.update(out)
        numbered = {f"_{number}": value for number, value in out.items()}
        last = [None, None, None, *out.values()][-3:]
        numbered.update(zip(("___", "__", "_"), last, strict=True))
        for name in ("_", "__", "___"):
            setattr(self._shell.displayhook, name, numbered[name])
        self._shell.push(numbered, interactive=False)

    def _count_on(self) -> None:
        """Cells are numbered from where the last kernel was."""
        count = self.workspace.runner.count
        if count < self._shell.execution_count:
            return
        self._shell.execution_count = count + 1
        history = self._shell.history_manager
        for kept in (history.input_hist_parsed, history.input_hist_raw) if history else ():
            kept.extend([""] * (count + 1 - len(kept)))


def _is_secret(value: object, known: frozenset[str], rule: Rule) -> bool:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return type(text) is str and (text in known or rule.secret(None, value))


def _bury(child: int) -> None:
    with suppress(ChildProcessError):  # the user's code waited for it
        os.waitpid(child, 0)
