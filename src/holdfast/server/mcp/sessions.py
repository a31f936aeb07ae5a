"""Sessions that agents work in: each cell is durable when its answer goes out.

So a worker is no more than a cache of its session's head: it may be put away, or killed, and the
next call that names the session brings it back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, Conflict, HoldfastError, Unsupported
from holdfast.model.report import Report
from holdfast.model.subject import Subject
from holdfast.server import contents
from holdfast.server.mcp import answers
from holdfast.server.mcp import arguments as given
from holdfast.server.mcp.contract import Progress
from holdfast.server.mcp.following import Follower
from holdfast.server.mcp.looking import compared, listed, shown
from holdfast.server.mcp.workspace import Workspace
from holdfast.session import Session
from holdfast.session.result import Repr, Result
from holdfast.store import Store

log = logging.getLogger("holdfast.mcp")
MOST = 8  # workers at once
TIMEOUT = 600.0  # seconds of a cell whose caller does not say


@dataclass(slots=True, eq=False)
class _Place:
    """Where a session runs, or may: one caller at a time opens or closes it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    session: Session | None = None
    users: int = 0


class SessionLevel:
    """Sessions of one store, in one workspace."""

    def __init__(self, store: Store, workspace: Workspace, *, show_secrets: bool) -> None:
        self._store = store
        self._workspace = workspace
        self._show_secrets = show_secrets
        self._places: dict[str, _Place] = {}  # the one used last is last

    # -- running

    async def execute(
        self, name: str, asked: given.Execute, progress: Progress
    ) -> answers.Executed:
        if asked.language != "python":
            raise Unsupported(
                f"a session runs python, not {asked.language}",
                hint="a sandbox runs bash: subject sandbox/NAME, on a server given by --server;"
                " or python's subprocess",
            )
        async with self._using(name) as session:
            result = await _run(session, asked, progress)
            unsaved = None
            try:
                await session.flush()
            except HoldfastError as error:
                unsaved = str(error)
            head = await asyncio.to_thread(self._store.head, session.subject)
        saved = head is not None and unsaved is None
        return msgspec.structs.replace(
            _executed(session.subject, result),
            checkpoint=answers.Moment.of(head) if head is not None and saved else None,
            unsaved=unsaved,
        )

    # -- freezing and bringing back

    async def checkpoint(self, name: str, asked: given.Checkpoint) -> answers.Kept:
        async with self._using(name) as session:
            made = await session.checkpoint(asked.reason)
        return self._kept(made.checkpoint.subject, answers.Moment.of(made.checkpoint))

    async def restore(self, name: str, asked: given.Restore) -> answers.Moved:
        async with self._using(name, anew=True) as session:
            report = await session.restore(_reference(session, asked.checkpoint))
            return await self._moved(session, report)

    async def rollback(self, name: str, asked: given.Rollback) -> answers.Moved:
        async with self._using(name, anew=True) as session:
            report = await session.rollback(_reference(session, asked.to))
            return await self._moved(session, report)

    async def fork(self, name: str, asked: given.Fork) -> answers.Kept:
        new = Subject("session", asked.name.removeprefix("session/"))
        if new.name == name:
            raise Conflict(f"{new} is what is to be copied", hint="choose another name")
        place = self._place(new.name)
        async with place.lock:
            if place.session is not None:
                raise Conflict(f"{new} runs already", hint="choose another name")
            if asked.checkpoint is not None:
                origin = _subject(name), asked.checkpoint
                made = await asyncio.to_thread(_copy, self._store, *origin, new.name)
                return self._kept(new, answers.Moment.of(made))
            async with self._using(name) as session:
                place.session = await session.fork(new.name)
        await self._make_room(keep=new.name)
        head = await asyncio.to_thread(self._store.head, new)
        assert head is not None
        return self._kept(new, answers.Moment.of(head))

    # -- looking

    async def list(self, name: str | None, asked: given.List) -> answers.Listed:
        running = frozenset(
            f"session/{each}" for each, place in self._places.items() if place.session is not None
        )
        subject = None if name is None else _subject(name)
        return await asyncio.to_thread(listed, self._store, subject, asked.limit, running)

    async def diff(self, name: str, asked: given.Diff) -> answers.Compared:
        subject = _subject(name)
        before, after = _full(subject, asked.before), _full(subject, asked.after)
        return await asyncio.to_thread(compared, self._store, subject, before, after)

    async def show(self, name: str, reference: str) -> dict[str, object]:
        return await asyncio.to_thread(shown, self._store, _subject(name), reference)

    # -- files

    async def read_file(self, name: str, asked: given.ReadFile) -> answers.FileRead:
        told = str(_subject(name))
        return await asyncio.to_thread(
            self._workspace.read, told, asked, show_secrets=self._show_secrets
        )

    async def write_file(self, name: str, asked: given.WriteFile) -> answers.FileWritten:
        return await asyncio.to_thread(self._workspace.write, str(_subject(name)), asked)

    # -- life

    async def close(self) -> None:
        """End all workers; what they did is in the store."""
        for name, place in list(self._places.items()):
            if place.session is not None:
                await place.session.interrupt()
            await self._put_away(name, place)

    def _place(self, name: str) -> _Place:
        place = self._places.pop(name, None) or _Place()
        self._places[name] = place
        return place

    @contextlib.asynccontextmanager
    async def _using(self, name: str, *, anew: bool = False) -> AsyncIterator[Session]:
        """The session, running; with `anew` it need not run, because it is brought back anyway."""
        subject = _subject(name)
        place = self._place(subject.name)
        place.users += 1
        try:
            async with place.lock:
                session = place.session or await self._open(subject, anew)
                if not anew:
                    place.session = session
            await self._make_room(keep=subject.name)
            yield session
            place.session = session  # brought back: from now on it runs
        finally:
            place.users -= 1

    async def _open(self, subject: Subject, anew: bool) -> Session:
        cwd = self._workspace.folder
        if anew:
            return Session(
                subject.name, store=self._store, fresh=True, auto_checkpoint="cell", cwd=cwd
            )
        await asyncio.to_thread(self._store.refresh)
        if await asyncio.to_thread(self._store.head, subject) is None:
            session = Session(subject.name, store=self._store, auto_checkpoint="cell", cwd=cwd)
            return await session.start()
        return await Session.resume(
            subject.name, store=self._store, auto_checkpoint="cell", cwd=cwd
        )

    async def _make_room(self, keep: str) -> None:
        running = [name for name, place in self._places.items() if place.session is not None]
        for name in running[: max(0, len(running) - MOST)]:
            if name != keep and not self._places[name].users:
                await self._put_away(name, self._places[name])

    async def _put_away(self, name: str, place: _Place) -> None:
        async with place.lock:
            session, place.session = place.session, None
            if session is not None:
                try:
                    await session.shutdown()
                except HoldfastError as error:
                    log.warning("session/%s: %s", name, error)

    async def _moved(self, session: Session, report: Report) -> answers.Moved:
        head = await asyncio.to_thread(self._store.head, session.subject)
        assert head is not None
        subject = str(session.subject)
        return answers.Moved.with_report(subject, answers.Moment.of(head), report)

    def _kept(self, subject: Subject, made: answers.Moment) -> answers.Kept:
        return answers.Kept(subject=str(subject), checkpoint=made)


async def _run(session: Session, asked: given.Execute, progress: Progress) -> Result:
    """Run a cell; its output is told as it comes. Cancelling interrupts it."""
    execution = session.stream(asked.code, timeout=asked.timeout or TIMEOUT)

    async def follow() -> None:
        follower = Follower(progress)
        async for event in execution:
            await follower.heard(event.text)

    following = asyncio.create_task(follow())
    try:
        return await asyncio.shield(execution.done)
    except asyncio.CancelledError:
        if not await session.interrupt() and execution.task is not None:
            execution.task.cancel()
        raise
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def _executed(subject: Subject, result: Result) -> answers.Executed:
    plain = not isinstance(result.value, Repr)
    error = result.error
    cut = answers.CUT
    return answers.Executed(
        subject=str(subject),
        ok=result.ok,
        value=contents.bounded(result.value) if plain else None,
        text="" if plain else str(result.value)[:cut],
        stdout=result.stdout[:cut],
        stderr=result.stderr[:cut],
        error=None
        if error is None
        else answers.Error(
            type=error.type, message=error.message[:cut], traceback=error.traceback[-cut:]
        ),
        seconds=round(result.duration, 4),
        truncated=result.truncated or max(len(result.stdout), len(result.stderr)) > cut,
        resumed_from=result.resumed_from,
    )


def _subject(name: str) -> Subject:
    return Subject("session", name)


def _full(subject: Subject, reference: str | None) -> str:
    """`~2` of this subject; everything else says itself what it means."""
    if reference is None:
        return str(subject)
    return f"{subject}{reference}" if reference.startswith("~") else reference


def _reference(session: Session, reference: str | None) -> str | None:
    """Raises BadInput for a file, which is not this tool's to take in."""
    if reference is not None and reference.startswith("/"):
        raise BadInput(f"{reference} is a file", hint="a person may `holdfast import` it")
    return reference


def _copy(store: Store, subject: Subject, reference: str, name: str) -> Checkpoint:
    return store.fork(store.resolve(_full(subject, reference)), name)
