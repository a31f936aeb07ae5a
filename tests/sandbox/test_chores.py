"""Work in the background: what clears away waits, unless the server stops."""

from __future__ import annotations

import asyncio

from holdfast.sandbox.chores import Chores


async def test_what_can_wait_waits_and_a_stop_does_not_wait_for_it() -> None:
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
