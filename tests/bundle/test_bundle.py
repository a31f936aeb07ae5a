"""Bundles of real sessions and states: together or not at all."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.session.test_mapped import damage

from holdfast import Session, StateManager, open_store, sync
from holdfast.bundle import Bundle, Member
from holdfast.bundle.heads import restore as restore_heads
from holdfast.bundle.member import member_of
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, CaptureFailed, Corrupt, NotFound, Owned, UsageError
from holdfast.model.subject import Subject
from holdfast.store.retention import Last
from holdfast.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


@pytest.fixture
async def session(store: Store) -> AsyncIterator[Session]:
    async with Session(name="work", store=store) as made:
        await made.execute("x = 1")
        yield made


@pytest.fixture
def state(store: Store) -> StateManager:
    made = StateManager("plan", store=store)
    made.set_state("x", 1)
    return made


class Stubborn:
    """A member that can be told to fail."""

    rank = 0
    lease = None

    def __init__(self, store: Store, *, fails: str = "") -> None:
        self.store = store
        self.subject = Subject("state", "stubborn")
        self.fails = fails
        self.paused = False
        self.value = 1
        self.seen: list[str] = []

    def _do(self, what: str) -> None:
        assert self.paused
        self.seen.append(what)
        if self.fails == what:
            raise CaptureFailed(f"{what} does not work")

    async def pause(self) -> None:
        self.paused = True

    async def resume(self) -> None:
        self.paused = False

    async def capture(self, reason: str, stage: str | None) -> Checkpoint:
        self._do("capture")
        with self.store.draft(self.subject, reason=reason, aside=True) as draft:
            draft.put("value", self.value, split="structure")
            return draft.commit()

    async def enter(self, checkpoint: Checkpoint, trust: bool) -> None:
        self.value = self.store.value(checkpoint, "value")
        try:
            self._do("enter")
        finally:
            self.fails = ""

    async def arrive(self, checkpoint: Checkpoint) -> None:
        self._do("arrive")


def heads(store: Store) -> dict[str, str]:
    return {str(each.subject): each.head.id for each in store.subjects() if each.head is not None}


async def value(session: Session) -> Any:
    return (await session.execute("x")).value


async def test_all_come_back_together(store: Store, session: Session, state: StateManager) -> None:
    bundle = Bundle("all", [state, session])
    first = await bundle.checkpoint("both are 1", stage="one")
    assert (first.subject.kind, first.reason, first.stage) == ("bundle", "both are 1", "one")
    moves = [store.history(name)[-1] for name in ("state/plan", "session/work", "bundle/all")]
    assert len({move.sequence for move in moves}) == 1  # by one entry
    assert store.verify(deep=True).ok

    await session.execute("x = 2")
    state.set_state("x", 2)
    second = await bundle.checkpoint("both are 2")
    assert (await bundle.restore(first)).id == first.id
    assert (await value(session), state.get_state("x")) == (1, 1)
    assert heads(store)["bundle/all"] == first.id
    await bundle.restore(second.id)
    assert (await value(session), state.get_state("x")) == (2, 2)
    assert [each.id for each in await bundle.list()] == [second.id, first.id]

    # Each goes on by itself from there, and what they make descends from it.
    alone = await session.checkpoint()
    assert alone.parents == (store.history("session/work")[-2].after,)
    kept = state.checkpoint("alone")
    assert kept.parent == store.history("state/plan")[-2].after
    await bundle.restore()
    assert await value(session) == 2


async def test_nothing_is_stored_twice(store: Store, session: Session) -> None:
    await session.execute("import os; big = os.urandom(3_000_000)")
    bundle = await Bundle("one", [session]).checkpoint()
    assert bundle.size_bytes > 3_000_000
    assert bundle.stored_bytes < 100_000


async def test_a_member_that_was_pruned_comes_from_the_bundle(
    store: Store, session: Session, state: StateManager
) -> None:
    bundle = Bundle("all", [state, session])
    first = await bundle.checkpoint()
    for number in range(3):
        await session.execute(f"x = {number + 5}")
        await session.checkpoint()
        state.set_state("x", number + 5)
        state.checkpoint()
    store.prune(Last(1), subject="session/work")
    store.prune(Last(1), subject="state/plan")
    assert store.count("session/work") == 1
    await bundle.restore(first)
    assert (await value(session), state.get_state("x")) == (1, 1)
    assert store.verify(deep=True).ok


async def test_a_bundle_that_travelled_alone(
    store: Store, session: Session, state: StateManager, tmp_path: Path
) -> None:
    first = await Bundle("all", [state, session]).checkpoint()
    store.export(first, tmp_path / "bundle.holdfast")
    elsewhere = open_store(tmp_path / "elsewhere")
    elsewhere.import_(tmp_path / "bundle.holdfast")
    other_state = StateManager("plan", store=elsewhere)
    async with Session(name="work", store=elsewhere) as other:
        await Bundle("all", [other_state, other]).restore(first.id)
        assert (await value(other), other_state.get_state("x")) == (1, 1)


@pytest.mark.parametrize("step", ["capture", "enter"])
async def test_when_one_fails_all_stay_as_they_were(
    step: str, store: Store, session: Session, state: StateManager
) -> None:
    stubborn = Stubborn(store)
    assert isinstance(stubborn, Member)
    bundle = Bundle("all", [state, stubborn, session])
    first = await bundle.checkpoint()
    await session.execute("x = 2; unsaved = 'kept'")
    state.set_state("x", 2)
    stubborn.value = 2
    before = heads(store), store.count()
    stubborn.fails = step
    with pytest.raises(CaptureFailed, match=f"{step} does not work"):
        await bundle.restore(first)
    assert (await value(session), state.get_state("x"), stubborn.value) == (2, 2, 2)
    assert (await session.execute("unsaved")).value == "kept"
    assert (heads(store), store.count()) == before
    stubborn.fails = "capture"
    with pytest.raises(CaptureFailed):
        await bundle.checkpoint()
    assert (heads(store), store.count()) == before
    stubborn.fails = ""
    await bundle.restore(first)
    assert (await value(session), state.get_state("x"), stubborn.value) == (1, 1, 1)
    assert not stubborn.paused


async def test_memory_that_nobody_has_looked_at_is_not_bound(
    tmp_path: Path, store: Store, session: Session
) -> None:
    """A session maps what it comes back to: it is frozen when all of that was verified."""
    await session.execute("import numpy as np; a = np.random.default_rng(1).random(400_000)")
    await session.checkpoint()
    await session.shutdown()
    damage(tmp_path / "store")
    again = open_store(tmp_path / "store")
    resumed, plan = await Session.resume("work", store=again), StateManager("plan", store=again)
    plan.checkpoint("before")
    before = [each.id for each in again.list()], heads(again)
    with pytest.raises(Corrupt, match="damaged"):
        await Bundle("all", [plan, resumed]).checkpoint()
    assert ([each.id for each in again.list()], heads(again)) == before
    assert [each.name for each in await resumed.variables()] == ["x", "np", "a"]  # not paused
    with suppress(Corrupt):  # that it was found by itself, too
        await resumed.shutdown()


async def test_a_hook_runs_before_anybody_goes_on_and_may_refuse(
    store: Store, session: Session, state: StateManager
) -> None:
    told: list[str] = []

    async def hook(target: Checkpoint) -> None:
        told.append(target.id)
        if len(told) == 1:
            raise ConnectionError("no new token today")

    bundle = Bundle("all", [state, session], on_restore=[hook, lambda target: None])
    first = await bundle.checkpoint()
    await session.execute("x = 2")
    state.set_state("x", 2)
    with pytest.raises(ConnectionError):
        await bundle.restore()
    assert (await value(session), state.get_state("x")) == (2, 2)
    await bundle.restore()
    assert (await value(session), state.get_state("x")) == (1, 1)
    assert told == [first.id, first.id]


async def test_what_cannot_be_bound(
    store: Store, session: Session, state: StateManager, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="int cannot be a member"):
        Bundle("all", [3])
    with pytest.raises(BadInput):
        Bundle("all", [])
    with pytest.raises(BadInput):
        Bundle("all", [state, state])
    with pytest.raises(UsageError, match="are files"):
        Bundle("all", [StateManager("plan", directory=tmp_path)])
    elsewhere = StateManager("plan", store=open_store(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match="the same store"):
        Bundle("all", [elsewhere, session])
    bundle = Bundle("all", [state, session])
    with pytest.raises(NotFound):
        await bundle.restore()
    first = await bundle.checkpoint()
    with pytest.raises(UsageError, match="binds session/work, state/plan"):
        await Bundle("all", [state]).restore(first)
    with pytest.raises(UsageError, match="is a checkpoint of"):
        await bundle.restore(store.head("session/work"))
    with store.draft("bundle/all") as draft:
        draft.put("members", {"format": "x"}, split="structure")
        odd = draft.commit()
    with pytest.raises(Corrupt, match="no bundle"):
        await bundle.restore(odd)
    assert member_of(session).subject == session.subject


def test_without_await(store: Store, state: StateManager) -> None:
    with sync.Session(name="work", store=store) as session:
        session.execute("x = 1")
        bundle = sync.Bundle("all", [state, session])
        first = bundle.checkpoint()
        session.execute("x = 2")
        state.set_state("x", 2)
        bundle.restore(first)
        assert (session.execute("x").value, state.get_state("x")) == (1, 1)


KILLED = """
import asyncio, os, signal, sys
from holdfast import Session, StateManager, open_store
from holdfast.bundle import Bundle

def die(target):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    store = open_store(sys.argv[1])
    state = StateManager("plan", store=store)
    session = await Session(name="work", store=store).start()
    bundle = Bundle("all", [state, session], on_restore=[die])
    for number in (1, 2):
        state.set_state("x", number)
        await session.execute(f"x = {number}")
        last = await bundle.checkpoint(str(number))
    print("restoring", flush=True)
    await bundle.restore("bundle/all~1")

asyncio.run(main())
"""


async def test_a_restore_that_is_killed_half_way_leaves_the_world_as_it_was(
    store: Store, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "restoring\n"), done.stderr
    store.refresh()
    assert (store.head("bundle/all") or pytest.fail("no head")).reason == "2"
    state = StateManager.load("plan", store=store)
    session = await Session.resume("work", store=store)
    try:
        assert (await value(session), state.get_state("x")) == (2, 2)
        bundle = Bundle("all", [state, session])
        await bundle.restore("bundle/all~1")
        assert (await value(session), state.get_state("x")) == (1, 1)
    finally:
        await session.shutdown()
    assert store.verify(deep=True).ok


@pytest.mark.parametrize("verb", ["checkpoint", "restore"])
async def test_cancelled_at_any_moment_all_or_none_move(
    store: Store, session: Session, state: StateManager, verb: str
) -> None:
    """The heads and what is in the members' memory agree, whenever the task is cancelled."""
    bundle = Bundle("all", [state, session])

    async def give(number: int) -> None:
        await session.execute(f"x = {number}")
        state.set_state("x", number)

    await bundle.checkpoint("1")
    await give(2)
    await bundle.checkpoint("2")
    began = time.monotonic()
    await bundle.restore("bundle/all~1")
    await bundle.restore("bundle/all")  # the head is now the first
    store.undo("bundle/all")
    span = (time.monotonic() - began) / 2
    outcomes = set()
    for step in range(16):
        await bundle.restore(next(each for each in await bundle.list() if each.reason == "2"))
        reasons = [each.reason for each in await bundle.list()]
        if verb == "restore":
            older = next(each for each in await bundle.list() if each.reason == "1")
            task = asyncio.ensure_future(bundle.restore(older))
        else:
            task = asyncio.ensure_future(bundle.checkpoint(f"taken {step}"))
        await asyncio.sleep(span * step / 10)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        head = store.head("bundle/all")
        assert head is not None
        outcomes.add(head.reason)
        expected = 1 if head.reason == "1" else 2
        assert (await value(session), state.get_state("x")) == (expected, expected), step
        members = {
            each.reason for each in (store.head("state/plan"), store.head("session/work")) if each
        }
        assert members == {head.reason}
        if verb == "checkpoint" and head.reason == "2":
            assert [each.reason for each in await bundle.list()] == reasons
    assert len(outcomes) > 1, "it was cancelled always before or always after the move"
    assert store.verify(deep=True).ok


async def test_heads_that_move_while_cancelled_keep_their_members(
    store: Store, session: Session, state: StateManager
) -> None:
    """The thread that moves the heads waits for another writer when the task is cancelled."""
    lock = os.open(Path(store.url) / "log/lock", os.O_RDWR)

    def hold(bundle: Checkpoint) -> None:
        fcntl.flock(lock, fcntl.LOCK_EX)

    bundle = Bundle("all", [state, session], on_restore=[hold])
    first = await bundle.checkpoint("1")
    await session.execute("x = 2")
    state.set_state("x", 2)
    await bundle.checkpoint("2")
    task = asyncio.ensure_future(bundle.restore(first))
    try:
        while not (moving := held(lock)) and not task.done():
            await asyncio.sleep(0.01)
        assert moving
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.sleep(0.05)
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)
    with pytest.raises(asyncio.CancelledError):
        await task
    head = store.head("bundle/all")
    assert head is not None
    expected = int(head.reason)
    assert (await value(session), state.get_state("x")) == (expected, expected)
    assert {head.reason} == {each.reason for each in map(store.head, MEMBERS) if each}


MEMBERS = ("state/plan", "session/work")


def held(lock: int) -> bool:
    """Whether this open file has the lock."""
    other = os.open(f"/proc/self/fd/{lock}", os.O_RDWR)
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(other)
    return False


def test_a_failed_move_leaves_no_checkpoints(store: Store, state: StateManager) -> None:
    """What a bundle restores in the place of pruned checkpoints goes again when it fails."""
    other = StateManager("other", store=store)
    bundle = sync.Bundle("all", [state, other])
    first = bundle.checkpoint("first")
    state.set_state("x", 2)
    bundle.checkpoint("second")
    store.delete(*(each.id for each in store.list(subject="state/plan") if each.reason == "first"))
    before = store.count()
    with store.lease("state/other"), pytest.raises(Owned):
        restore_heads(store, first, trust=False)
    assert store.count() == before
