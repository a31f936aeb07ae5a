"""What is not left halfway."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import holdfast.sandbox
from holdfast.model.fault_points import listening
from holdfast.sandbox.whole import in_thread, in_thread_or_undone, whole


async def test_who_is_cancelled_hears_of_it_when_the_work_is_done() -> None:
    done = []

    async def work(fails: bool) -> int:
        await asyncio.sleep(0.02)
        done.append(fails)
        return 1 // (not fails)

    assert await whole(work(False)) == 1
    with pytest.raises(ZeroDivisionError):
        await whole(work(True))
    for fails in (False, True):
        task = asyncio.ensure_future(whole(work(fails)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert done == [False, True, False, True]


async def test_what_nobody_is_told_of_is_undone() -> None:
    """Also when somebody is cancelled again and again, and while it is undone."""
    happened: list[str] = []
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def change() -> str:
        begun.set()
        await may_end.wait()
        happened.append("changed")
        return "it"

    async def undo(what: str) -> None:
        await asyncio.sleep(0.01)
        happened.append(f"undid {what}")

    task = asyncio.ensure_future(whole(change(), undo=undo))
    await begun.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert happened == []
    may_end.set()
    while "changed" not in happened:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert happened == ["changed", "undid it"]
    assert await whole(asyncio.sleep(0, "kept"), undo=undo) == "kept"
    assert len(happened) == 2


async def test_a_thread_is_waited_for() -> None:
    """Nobody clears away what it still works on."""
    begun, may_end = threading.Event(), threading.Event()
    undone: list[int] = []

    def change() -> int:
        begun.set()
        may_end.wait(20)
        return 7

    task = asyncio.ensure_future(in_thread_or_undone(undone.append, change))
    await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undone == [7]


async def test_steps_are_told_to_who_listens() -> None:
    seen: list[str] = []
    with listening(seen.append):
        assert await in_thread(sum, [1, 2], start=3) == 6
        await asyncio.create_task(in_thread(Path.cwd))
    assert await in_thread(sum, [1]) == 1
    assert [name.rpartition(".")[2] for name in seen] == ["sum", "cwd"]


def test_no_other_way_into_a_thread() -> None:
    """Whoever is cancelled while a thread changes something would not take that back."""
    folder = Path(str(holdfast.sandbox.__file__)).parent
    found = [path.name for path in folder.rglob("*.py") if "to_thread(" in path.read_text()]
    assert found == []
