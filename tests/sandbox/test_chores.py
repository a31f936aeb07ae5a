"""Work in the background: what clears away waits, unless the server stops."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast.sandbox import chores as resting
from holdfast.sandbox.chores import Chores


async def test_what_can_wait_waits_and_a_stop_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resting, "REST_SECONDS", 60.0)
    monkeypatch.setattr(resting, "LONGEST_REST_SECONDS", 60.0)
    chores, done = Chores(), []

    async def work(name: str) -> None:
        done.append(name)
        if name == "fails":
            raise OSError("it is logged")

    chores.begin_later(work("late"))
    chores.begin_later(work("fails"))
    chores.begin(work("soon"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == ["soon"]
    began = asyncio.get_running_loop().time()
    await chores.finish(60)
    assert sorted(done) == ["fails", "late", "soon"]
    assert asyncio.get_running_loop().time() - began < 30


async def test_it_waits_for_those_who_move_a_sandbox_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resting, "REST_SECONDS", 0.05)
    monkeypatch.setattr(resting, "LONGEST_REST_SECONDS", 60.0)
    chores = Chores()
    rested = asyncio.create_task(chores.rest())
    with chores.moving():
        await asyncio.sleep(0.2)
        assert not rested.done()
        ended = time.monotonic()  # and not behind it: the rest is counted from there
    await rested
    assert time.monotonic() - ended >= 0.04  # whoever moved it goes on with it
    monkeypatch.setattr(resting, "LONGEST_REST_SECONDS", 0.2)
    with chores.moving():
        await asyncio.wait_for(chores.rest(), 30)
