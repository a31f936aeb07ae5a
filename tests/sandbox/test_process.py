"""Processes as the host sees them: what they owe, and what they are owed."""

from __future__ import annotations

import asyncio

from tests.sandbox.impostor import impostor

from holdfast.sandbox.process import UNPAID
from holdfast.sandbox.start import Start


async def test_a_word_is_not_paid_for_by_itself() -> None:
    async with impostor() as one:
        starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
        identity = (await one.order())["id"]
        one.say(type="started", id=identity)
        process = await starting
        said = 0
        while said < UNPAID:
            assert process.balance == (said, 0)
            one.say(b"x" * (UNPAID // 4), type="output", id=identity, stream="stdout")
            said += UNPAID // 4
            while process.replay.end < said:
                await asyncio.wait_for(process.changed(), 5)
        assert await one.order() == {"type": "credit", "id": identity, "bytes": UNPAID}
        assert process.balance == (0, 0)
        assert not one.heard


async def test_what_is_paid_and_given_while_it_stands_still_is_owed_to_a_restored_one() -> None:
    async with impostor() as one:
        starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
        identity = (await one.order())["id"]
        one.say(type="started", id=identity)
        process = await starting
        process.follower = True
        for half in (UNPAID // 2, UNPAID):
            one.say(b"x" * (UNPAID // 2), type="output", id=identity, stream="stdout")
            while process.replay.end < half:
                await asyncio.wait_for(process.changed(), 5)
        one.say(type="granted", id=identity, bytes=10)
        freezing = asyncio.create_task(one.line.quiesce(7))
        await one.order()
        one.say(type="quiesced", epoch=7)
        await freezing
        process.consumed()  # its reader does not know that it stands still
        await process.write(b"word")
        assert process.balance == (UNPAID, 10)
        resuming = asyncio.create_task(one.line.resume(7))
        await one.order()
        one.say(type="resumed", epoch=7)
        await resuming
        assert await one.order() == {"type": "credit", "id": identity, "bytes": UNPAID}
        assert await one.order() == {"type": "input", "id": identity}
        assert process.balance == (0, 6)


async def test_output_that_comes_before_a_task_begins_to_wait_is_not_missed() -> None:
    async with impostor() as one:
        starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
        one.say(type="started", id=(await one.order())["id"])
        process = await starting
        waiting = asyncio.create_task(process.changed())
        process.heard("stdout", b"word")
        await asyncio.wait_for(waiting, 5)
        assert [piece.data for piece in process.replay.after(0)] == [b"word"]
