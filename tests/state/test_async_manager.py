"""The twin for asyncio: the same, awaited."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest

from holdfast.model.errors import NotFound
from holdfast.state import AsyncStateManager, Change, StateManager


async def test_everything_there_is(kept: dict[str, Any]) -> None:
    manager = AsyncStateManager("s", **kept)
    assert manager.session_id == "s"
    manager.set_state("n", 1)
    first = await manager.checkpoint("one")
    manager.set_state("n", 2)
    second = await manager.checkpoint("two")
    assert [each.id for each in await manager.list_checkpoints()] == [second.id, first.id]
    assert await manager.diff(first) == [Change("n", 1, 2)]
    await manager.rollback()
    assert manager.get_state("n") == 1
    other = await manager.fork("other")
    assert isinstance(other, AsyncStateManager)
    assert other.parent_session == "s"
    manager.set_state("n", 3)
    await manager.save_state()
    loaded = await AsyncStateManager.load("s", **kept)
    assert isinstance(loaded, AsyncStateManager)
    assert loaded.state_data == {"n": 3}
    with pytest.raises(NotFound):
        await AsyncStateManager.load("nobody", **kept)


async def test_attributes_are_those_of_the_one(kept: dict[str, Any]) -> None:
    manager = AsyncStateManager("s", **kept)
    manager.checkpoint_limit = 2
    for n in range(4):
        manager.state_data["n"] = n
        await manager.checkpoint()
    assert len(await manager.list_checkpoints()) == 2
    assert "s" in repr(manager)


async def test_stages(kept: dict[str, Any]) -> None:
    manager = AsyncStateManager("s", **kept)
    manager.set_state("n", 0)
    async with manager.stage("fine") as entry:
        manager.set_state("n", 1)
    assert entry.stage == "fine"
    assert manager.get_state("n") == 1

    async def fail() -> None:
        async with manager.stage("bad"):
            manager.set_state("n", 2)
            await asyncio.sleep(60)

    task = asyncio.create_task(fail())
    while manager.get_state("n") != 2:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert manager.get_state("n") == 1


async def test_the_state_is_taken_when_it_is_asked_for(kept: dict[str, Any]) -> None:
    """Whatever other tasks do while the disk is written to."""
    manager = AsyncStateManager("s", checkpoint_limit=100, **kept)
    made = []
    for n in range(20):
        manager.set_state("n", n)
        made.append(asyncio.ensure_future(manager.checkpoint()))
        await asyncio.sleep(0)
        manager.set_state("n", -1)
    checkpoints = await asyncio.gather(*made)
    for n, each in enumerate(checkpoints):
        await manager.rollback(each)
        assert manager.get_state("n") == n


async def test_the_loop_goes_on_meanwhile(kept: dict[str, Any]) -> None:
    manager = AsyncStateManager("s", **kept)
    manager.set_state("big", [f"{i} " * 50 for i in range(2000)])
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await manager.checkpoint()
    ticking.cancel()
    assert ticks > 0
    assert threading.current_thread() is threading.main_thread()


def test_it_has_all_that_the_other_has() -> None:
    waits = {"checkpoint", "rollback", "fork", "diff", "save_state", "list_checkpoints", "load"}
    for name, member in vars(StateManager).items():
        if name.startswith("_"):
            continue
        twin = getattr(AsyncStateManager, name, None)
        if name in waits:
            assert inspect.iscoroutinefunction(twin), name
            assert twin.__doc__ or name == "load"
        elif name == "stage":
            assert twin is not None
        else:
            # What waits for nothing is the other's own.
            assert not inspect.iscoroutinefunction(member)
            assert twin is None, name


async def test_what_was_begun_last_is_what_is_loaded(kept: dict[str, Any]) -> None:
    """They are written by threads, and must not overtake each other."""
    manager = AsyncStateManager("order", **kept)
    for turn in range(30):
        begun = []
        for step in range(8):
            manager.set_state("step", (turn, step))
            begun.append(
                asyncio.create_task(manager.save_state() if step % 2 else manager.checkpoint())
            )
            await asyncio.sleep(0)
        await asyncio.gather(*begun)
        loaded = await AsyncStateManager.load("order", **kept)
        assert loaded.get_state("step") == manager.get_state("step") == (turn, 7)


@pytest.mark.parametrize("verb", ["checkpoint", "save_state"])
async def test_cancelled_writes_leave_nothing_pending(kept: dict[str, Any], verb: str) -> None:
    """A state that was taken and is not written, because its caller was cancelled while it waited
    for its turn, keeps no memory and no later state back."""
    manager = AsyncStateManager("s", **kept)
    manager.set_state("n", 1)
    own = manager._manager
    async with manager._order.turn():  # somebody else's write takes its time
        waiting = [asyncio.ensure_future(getattr(manager, verb)()) for _ in range(3)]
        await asyncio.sleep(0)
        assert len(own._under_way) == 3
        for each in waiting:
            each.cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in outcomes)
    assert len(own._under_way) == 0
    manager.set_state("n", 2)
    await manager.checkpoint()
    assert own._newest is None
    assert (await AsyncStateManager.load("s", **kept)).state_data == {"n": 2}


def test_stages_of_several_threads_keep_their_names(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    entered, leave = threading.Event(), threading.Event()

    def outer() -> None:
        with manager.stage("first"):
            entered.set()
            assert leave.wait(30)

    thread = threading.Thread(target=outer)
    thread.start()
    assert entered.wait(30)
    with manager.stage("second"):
        leave.set()
        thread.join(30)
        assert manager.get_state("current_stage") == "second"
    with manager.stage("third"):
        assert manager.get_state("current_stage") == "third"
    assert manager._stages == []


async def test_a_stage_cancelled_at_its_start_is_left(kept: dict[str, Any]) -> None:
    manager = AsyncStateManager("s", **kept)
    manager.set_state("n", 1)

    async def work() -> None:
        async with manager.stage("never"):
            raise AssertionError("it was cancelled before")

    with manager._manager._lock:  # its thread waits for this
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0.05)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert manager.get_state("n") == 1
    assert manager._manager._stages == []
    async with manager.stage("next"):
        assert manager.get_state("current_stage") == "next"
