"""Between a worker and its past: captures go into the store, checkpoints back into the worker.

The coroutines whose names begin with a verb are called with the driver's lock held, which `pause`
takes for whoever is not the session itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import CaptureFailed, HoldfastError
from holdfast.model.fault_points import fault_point
from holdfast.model.report import Report
from holdfast.model.subject import Subject
from holdfast.session.ahead import Ahead
from holdfast.session.arriving import Arriving, Coming
from holdfast.session.autosave import Autosave
from holdfast.session.captured import StoodStill
from holdfast.session.checkpoints import Reference, SessionCheckpoint, Stored, report_of
from holdfast.session.driver import Driver, Place
from holdfast.session.history import History, Position
from holdfast.session.launching import Launching
from holdfast.session.result import Result
from holdfast.session.saving import ENDED, Saving
from holdfast.session.settings import Settings
from holdfast.session.work import WORK_TIMEOUT
from holdfast.store import Store
from holdfast.store.leases import Lease

END_TIMEOUT = 60.0  # seconds for what is on its way when a session ends
_LATER = 0.05  # seconds until mapped memory is looked at, unless somebody waits for that

log = logging.getLogger("holdfast.session")


class Frozen(NamedTuple):
    """A capture, and its commit."""

    captured: Coming
    done: asyncio.Future[SessionCheckpoint]


class Keeper:
    """Freezes what the driver drives, and brings it back."""

    def __init__(
        self, subject: Subject, driver: Driver, history: History, settings: Settings
    ) -> None:
        self.subject = subject
        self._driver = driver
        self._history = history
        self._settings = settings
        self.saving = Saving()
        self.saving.on_room = self._make_up
        self.autosave = Autosave(settings.auto_checkpoint, self.on_the_clock)
        self.report: Report | None = None  # of the last restore
        history.on_lost = self._lost
        driver.before_cell = self.saving.check
        driver.revive = self.revive
        driver.after_cell = self.after_cell
        driver.on_death = self._rest
        self._resting: asyncio.Task[None] | None = None
        self._making_up: asyncio.Task[None] | None = None
        self._stood = False  # whether the copy that made the last capture stood still

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The one that the worker is served on, if it was ever started."""
        return self._driver.loop

    # -- owning --------------------------------------------------------------------------

    async def own(self) -> None:
        """Become the owner of the subject, before anything runs. Raises Conflict.

        A cancellation is raised when that has come to its end, so that `disown` follows it.
        """
        task = asyncio.ensure_future(asyncio.to_thread(self._history.own))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # nobody hears of it
            raise

    async def disown(self) -> None:
        """Nothing runs any more."""
        await self.saving.settled()
        await asyncio.to_thread(self._history.disown)

    def _lost(self, error: HoldfastError) -> None:
        """Called in the lease's own thread: the next call raises it."""
        loop = self._driver.loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.saving.failed, error)

    def _rest(self) -> None:
        """The worker died. While nothing runs, somebody else may go on with the subject."""

        async def disown() -> None:
            async with self._driver.lock:
                if not self._driver.alive:
                    try:
                        await self.disown()
                    except RuntimeError as error:
                        # The program ends, and no thread is to be had. Nothing is lost by that:
                        # nobody renews the lease, so it ends by itself.
                        log.debug("the lease of %s ends by itself: %s", self.subject, error)
                    except Exception as error:  # noqa: BLE001  # nobody waits for this task
                        self.saving.failed(error)

        self._resting = asyncio.create_task(disown())

    # -- standing still ------------------------------------------------------------------

    @property
    def lease(self) -> Lease | None:
        """The right to advance the subject, when it is ours."""
        return self._history.lease

    async def pause(self) -> None:
        """Take the lock: wait for the cell that runs, and let none begin. Raises UsageError."""
        self._driver.check_open()
        await self._driver.lock.acquire()

    def resume(self) -> None:
        """Give the lock back."""
        self._driver.lock.release()

    async def run(self, code: str, timeout: float) -> None:
        """Run a cell while nobody else can. Raises CellFailed."""
        (await self._driver.run_inside(code, timeout)).check()

    # -- freezing ------------------------------------------------------------------------

    async def freeze(
        self,
        reason: str,
        stage: str | None = None,
        save_to_disk: bool = True,
        timeout: float | None = WORK_TIMEOUT,
    ) -> Frozen:
        """Capture now; the commit goes on beside the session."""
        await self.saving.room()
        ahead, base = None, self._history.base()
        # Not while something is on its way: it is not known yet on top of what.
        if save_to_disk and base > 0 and not self.saving.waiting:
            begin = partial(self._history.begin, base, reason=reason, stage=stage)
            ahead = Ahead(begin, self._history.go_on)
        try:
            captured = await self._driver.to_the_end(
                self._capture(reason, stage, save_to_disk, timeout, ahead)
            )
        except BaseException:
            if ahead is not None:
                ahead.give_up()
            raise
        what = self.autosave.captured()
        done = self.saving.begin(
            partial(
                self._history.save,
                captured,
                reason=reason,
                stage=stage,
                save_to_disk=save_to_disk,
                ahead=ahead,
            ),
            captured,
        )
        done.add_done_callback(partial(self._arrived, what, reason))
        return Frozen(captured, done)

    def _arrived(self, what: int, reason: str, done: asyncio.Future[SessionCheckpoint]) -> None:
        if done.cancelled() or done.exception() is not None or not done.result().saved_to_disk:
            self.autosave.missed()
            if not done.cancelled() and isinstance(done.exception(), StoodStill):
                self._stood = True
                if self.autosave.due:
                    self.autosave.put_off(reason)
                    self._make_up()
        else:
            self.autosave.saved(what)

    async def checkpoint(
        self, reason: str, stage: str | None, save_to_disk: bool, timeout: float | None
    ) -> SessionCheckpoint:
        """Freeze, and wait until that is durable. Takes the lock itself."""
        async with self._driver.lock:
            frozen = await self.freeze(reason, stage, save_to_disk, timeout)
        try:
            return await self.wait_for(frozen)
        except StoodStill:  # and it is captured in place
            async with self._driver.lock:
                frozen = await self.freeze(reason, stage, save_to_disk, timeout)
            return await self.wait_for(frozen)

    async def wait_for(self, frozen: Frozen) -> SessionCheckpoint:
        """The checkpoint, when it is durable. Cancelling ends a capture beside the session."""
        captured, done = frozen
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if isinstance(captured, Arriving) and captured.open:
                captured.stop("the capture was cancelled")
                done.add_done_callback(lambda done: done.exception())  # nobody hears of it
            else:
                self.saving.leave(done)
            raise

    async def freeze_as(self, other: Subject) -> Checkpoint:
        """This very moment as the first checkpoint of another session. Raises Conflict."""
        reason = f"fork of {self.subject}"
        await self.saving.settled()
        await asyncio.to_thread(self._history.check_free, other, "choose another name")
        fault_point("the name is free")
        captured = await self._capture(reason, None, True, WORK_TIMEOUT)
        try:
            fault_point("the session is captured")
        except BaseException:
            captured.close()
            raise
        save = partial(self._history.save_as, other, reason=reason)
        return await self._stored(save, captured, reason, None)

    async def take_back(self, made: Sequence[Checkpoint], error: BaseException) -> None:
        """Delete checkpoints that were made for something which then raised this."""
        try:
            await asyncio.to_thread(self._history.store.delete, *made)
        except Exception as failure:  # noqa: BLE001  # the first error is the one to raise
            names = ", ".join(str(each.subject) for each in made)
            error.add_note(f"{names} could not be deleted: {failure}")

    async def freeze_aside(self, reason: str, stage: str | None) -> Checkpoint:
        """This very moment as a checkpoint that the head does not come to by itself. Raises
        UsageError when there is no worker."""
        self._driver.worker()
        await self.saving.settled()
        captured = await self._driver.to_the_end(self._capture(reason, stage, True, WORK_TIMEOUT))
        save = partial(self._history.save_aside, reason=reason, stage=stage)
        return await self._driver.to_the_end(self._stored(save, captured, reason, stage))

    async def _stored(
        self,
        save: Callable[[Coming], Checkpoint],
        captured: Coming,
        reason: str,
        stage: str | None,
    ) -> Checkpoint:
        """Save a capture, with `lock` held, so that one in place is of the same moment."""
        try:
            return await asyncio.to_thread(save, captured)
        except StoodStill:
            self._stood = True
            again = await self._capture(reason, stage, True, WORK_TIMEOUT)
            return await asyncio.to_thread(save, again)

    async def _capture(
        self,
        reason: str,
        stage: str | None,
        save_to_disk: bool,
        timeout: float | None,
        ahead: Ahead | None = None,
    ) -> Coming:
        item, most = self._settings.max_item_bytes, self._settings.max_checkpoint_bytes
        stood, self._stood = self._stood, False
        rule = self._settings.rule
        capture = partial(
            self._driver.capture, reason, stage, save_to_disk, item, most, rule, stood=stood
        )
        base = self._history.base() if save_to_disk else 0
        if base <= 0:
            return await capture(base, timeout)
        # Looked up while the worker is at it, which is asked before this begins.
        looking = asyncio.create_task(self._has(base, ahead))
        try:
            captured = await capture(base, timeout, ahead.take if ahead is not None else None)
        except BaseException:
            await asyncio.gather(looking, return_exceptions=True)
            raise
        try:
            if await looking:
                return captured
        except BaseException:
            captured.close()
            raise
        captured.close()
        if ahead is not None:
            ahead.give_up()
        return await capture(0, timeout)

    async def _has(self, base: int, ahead: Ahead | None) -> bool:
        """Whether a base is there; and what can be done ahead of the capture is begun."""
        if ahead is None:
            return await asyncio.to_thread(self._history.has, base)
        return (await asyncio.wrap_future(ahead.begin())).there

    # -- by itself -----------------------------------------------------------------------

    async def after_cell(self, result: Result) -> None:
        """What the driver calls when a cell has ended."""
        if not self.autosave.ran() or self._driver.closing:  # `finish` saves what is due
            return
        reason = f"cell {result.execution_count}"
        if self._driver.alive:
            await self._save_beside(reason)
        else:  # it has ended in between: whoever relies on the checkpoint is told
            self.autosave.put_off(reason)

    async def on_the_clock(self) -> None:
        """An automatic checkpoint, as soon as the worker is free. Takes the lock itself."""
        async with self._driver.lock:
            if self._driver.alive and self.autosave.due:
                await self._save_beside(self.autosave.owed or "automatic")

    def _make_up(self) -> None:
        """There is room for the checkpoint that was put off, as soon as the worker is free."""
        under_way = self._making_up is not None and not self._making_up.done()
        if self.autosave.owed is not None and not under_way and not self._driver.closing:
            self._making_up = asyncio.create_task(self.on_the_clock())

    async def settle(self) -> None:
        """Wait until all that ran is saved, as far as that was to happen by itself."""
        await self.saving.settled()
        if self.autosave.late and self._driver.alive:
            await self._save_beside(self.autosave.owed or "automatic")
            await self.saving.settled()

    def note_owed(self) -> None:
        """A worker that ended before its last cells were saved is a failure of that."""
        if self.autosave.due and self._driver.started and not self._driver.alive:
            what = self.autosave.owed or "what ran last"
            lost = f"{self.subject}: the worker ended before {what} was saved"
            self.saving.failed(CaptureFailed(lost, hint=self._driver.hint))
            self.autosave.settle()  # told once

    async def finish(self) -> None:
        """Before the worker ends: save what is due, unless a cell is in the way."""
        self.autosave.stop()
        self._driver.closing = True
        try:
            if self._driver.busy:  # it may have answered already
                self._driver.interrupt()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0), self._driver.lock:
                        pass
            if not self._driver.busy:
                # What comes to nothing is due again.
                await asyncio.wait_for(self.saving.settled(), END_TIMEOUT)
                await self.on_the_clock()
            await asyncio.wait_for(self.saving.settled(), END_TIMEOUT)
        except TimeoutError:
            self._driver.interrupt()
            await self.saving.settled()
        self.note_owed()

    async def leave(self) -> None:
        """The program ends, and nobody ended the session: save what is due, and raise what went
        wrong. What a thread of the program still runs is left alone."""
        await self.saving.settled()
        if not self._driver.busy and not self._driver.closed:
            await self.on_the_clock()
        await self.saving.settled()
        self.note_owed()
        self.saving.check()

    def lost(self) -> HoldfastError | None:
        """What of a session that nobody ended is not saved, when its loop is over."""
        failure = self.saving.lost()
        if failure is None and self.autosave.due:
            failure = CaptureFailed("the event loop ended before it was saved", hint=ENDED)
        return failure

    async def _save_beside(self, reason: str) -> None:
        """A checkpoint that nobody waits for: what goes wrong is raised by the next call."""
        if self.saving.crowded:  # and nobody waits for room either
            self.autosave.put_off(reason)
            return
        try:
            self.saving.leave((await self.freeze(reason)).done)
        except Exception as error:  # noqa: BLE001  # with the clock's task it would be lost
            self.saving.failed(error)

    # -- bringing back -------------------------------------------------------------------

    async def begin_at_head(self, trust: bool) -> None:
        """Start with the namespace of the subject's head, and go on from there."""
        given = self._settings.given(None)
        launching = Launching(self._driver)
        launching.begin()
        try:
            await asyncio.sleep(0)  # what looks for the checkpoint would only keep it from starting
            await asyncio.to_thread(self._history.check_there)  # before anything is owned
            fault_point("there is a checkpoint")
            await self.own()
            fault_point("the subject is owned")
            head = await asyncio.to_thread(self._history.head)  # nobody moves it any more
        except BaseException:
            await launching.give_up()
            raise
        await self._apply(self._history.store, head, given, trust, launching=launching)
        self._history.line.at = head

    async def restore(
        self,
        reference: Reference | None,
        secrets: Mapping[str, str | bytes],
        trust: bool,
        timeout: float | None,
    ) -> Report:
        """The head moves to a checkpoint, and the worker follows; or neither does."""
        await self.saving.settled()
        store, target = await asyncio.to_thread(self._history.find, reference, True)
        move = partial(self._history.move_to, store, target, trust)
        report = await self._apply(store, target, secrets, trust, timeout, move=move)
        if not self._history.is_ours(store, target):
            self.autosave.differs()
        return report

    async def rollback(
        self,
        to: Reference | None,
        secrets: Mapping[str, str | bytes],
        trust: bool,
        timeout: float | None,
    ) -> Report:
        """The head moves on to a new checkpoint, and the worker follows; or neither does."""
        await self.saving.settled()
        history = self._history
        at = history.line.at
        try:
            if not self._driver.started:
                history.line.at = await asyncio.to_thread(history.head)
            target = await asyncio.to_thread(history.rollback_target, to)
            move = partial(history.roll_back, target, trust)
            return await self._apply(history.store, target, secrets, trust, timeout, move=move)
        except BaseException:
            history.line.at = at
            raise

    async def enter(self, target: Checkpoint, trust: bool) -> Report:
        """Into the worker; the head stays where it is."""
        await self.settle()
        given = self._settings.given(None)
        work = self._apply(self._history.store, target, given, trust)
        return await self._driver.to_the_end(work)

    def arrive(self, target: Checkpoint) -> None:
        """The head has been moved to what the worker has."""
        self._history.line.at = target

    async def revive(self) -> str | None:
        """After a crash: a new worker with the namespace of this session's last checkpoint."""
        await self.saving.settled()
        last = self._history.line.at
        if last is None:
            return None
        # It made or restored this checkpoint itself, so it has been trusting it all along.
        await self._apply(self._history.store, last, self._settings.given(None), trust=True)
        return last.id

    async def _apply(
        self,
        store: Store,
        target: Checkpoint,
        secrets: Mapping[str, str | bytes],
        trust: bool,
        timeout: float | None = WORK_TIMEOUT,
        launching: Launching | None = None,
        move: Callable[[], Checkpoint] | None = None,
    ) -> Report:
        """Into the worker, or into a new one where it died. What `move` does to the head, and all
        else, is undone when it raises."""
        driver, history = self._driver, self._history
        launching = launching or Launching(driver)
        place, position = driver.place, None
        try:
            if not (driver.alive or launching.begun):
                launching.begin()
            if launching.begun:
                fault_point("a worker is launched")
                await self.own()
                fault_point("the subject is owned")
            stored = await asyncio.to_thread(history.read, store, target, trust, launching.tell)
            fault_point("the checkpoint is read")
            if move is not None:
                position = await asyncio.to_thread(history.position)
                target = await asyncio.to_thread(move)
                fault_point("the head is moved")
            restored = None
            if not launching.begun:
                # None: it was dying already and nobody had noticed, so a new one takes its place.
                restored = await driver.restore(target.id, stored, secrets, timeout)
                if restored is None:
                    await self.own()
            if restored is None:
                await driver.start(await launching.taken())
                fault_point("a new worker is there")
                restored = await driver.restore(target.id, stored, secrets, timeout)
            if restored is None:
                from holdfast.session.errors import WorkerDied

                driver.check_open()
                raise WorkerDied(
                    f"{self.subject}: the worker ended while it restored ({driver.state})",
                    hint="restore an earlier checkpoint",
                )
        except BaseException as error:
            await self._undo(error, launching, place, position)
            raise
        # From here on nothing raises: the worker has it.
        history.restored(store, target, stored, restored.request_id)
        self._watch(stored)
        self.autosave.settle()
        self.report = report_of(restored.items)
        return self.report

    async def _undo(
        self,
        error: BaseException,
        launching: Launching,
        place: Place,
        position: Position | None,
    ) -> None:
        """After a restore that raised this: the head, the worker and the lease as they were. What
        cannot be undone is noted in the error."""
        if position is not None:
            try:
                await asyncio.to_thread(self._history.go_back, position)
            except Exception as failure:  # noqa: BLE001  # the first error is the one to raise
                error.add_note(f"the store could not be set back: {failure}")
        await launching.give_up()
        await self._driver.back_to(place)
        if not self._driver.alive:
            try:
                await self.disown()
            except Exception as failure:  # noqa: BLE001  # it expires by itself
                error.add_note(f"the lease could not be given back: {failure}")

    def _watch(self, stored: Stored) -> None:
        """Damage that is found while the session runs on it is raised by the next call, once."""
        loop = asyncio.get_running_loop()
        found: list[HoldfastError] = []  # one damage may be met in several arrays

        def note(error: HoldfastError) -> None:
            found.append(error)
            if len(found) == 1:
                error.hint = error.hint or "the session runs on damaged data: restore another one"
                self.saving.failed(error)

        def tell(done: Future[None]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is None or loop.is_closed():
                return
            if not isinstance(error, HoldfastError):
                told = HoldfastError(f"{self.subject}: restored memory could not be read: {error}")
                told.__cause__, error = error, told
            loop.call_soon_threadsafe(note, error)

        def begin() -> None:
            for future in stored.memory.verify():
                future.add_done_callback(tell)

        # Not while the first cells are waited for: it takes all processors that there are.
        loop.call_later(_LATER, begin)
