"""What is not left halfway."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.sandbox.whole import whole


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
