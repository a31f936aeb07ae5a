"""The line to an agent that may be anybody: nothing it says breaks the host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.model.errors import CaptureFailed, HoldfastError
from holdfast.sandbox.line import UNPAID, AgentLine, Gone, Start


class Impostor:
    """The other end of a line."""

    def __init__(self) -> None:
        self.hears, host_writes = os.pipe()
        host_reads, self.says = os.pipe()
        os.set_blocking(self.hears, False)
        self.heard = b""
        self.line = AgentLine((host_reads, host_writes))

    def say(self, data: bytes = b"", **header: object) -> None:
        payload = json.dumps(header).encode() + b"\n" + data
        self.raw(struct.pack(">I", len(payload)) + payload)

    def raw(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self.says, data)

    async def order(self) -> dict[str, object]:
        for _ in range(1000):
            with contextlib.suppress(BlockingIOError):
                self.heard += os.read(self.hears, 65536)
            end = 4 + int.from_bytes(self.heard[:4], "big")
            if 4 < end <= len(self.heard):
                frame, self.heard = self.heard[4:end], self.heard[end:]
                return dict(json.loads(frame.partition(b"\n")[0]))
            await asyncio.sleep(0.001)
        raise AssertionError("nothing was ordered")

    def close(self) -> None:
        self.line.close()
        os.close(self.hears)
        os.close(self.says)


@contextlib.asynccontextmanager
async def impostor() -> AsyncIterator[Impostor]:
    one = Impostor()
    yield one
    one.close()


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\3{}\n",
        b"\0\0\0\2{}",
        b"\0\0\0\3[]\n",
        b"\0\0\0\5{nul\n",
        b'\0\0\0\x17{"type":"output","id":1}\n',
        b'\0\0\0\x15{"type":"ended","id":""}\n'[:4] + b"x" * 0x15,
        b"\0\0\0\x02\n\n",
        b"\0\0\x40\x00" + b"[" * 0x4000,
    ],
)
async def test_nonsense_ends_the_line(said: bytes) -> None:
    async with impostor() as one:
        one.raw(said)
        assert "not to be trusted" in await asyncio.wait_for(one.line.gone, 5)


async def test_lies_about_processes_end_the_line() -> None:
    lies: list[dict[str, object]] = [
        {"type": "output", "stream": "stdin"},
        {"type": "granted", "bytes": -1},
        {"type": "granted", "bytes": "many"},
        {"type": "granted", "bytes": 10**12},
        {"type": "ended", "code": []},
        {"type": "started"},
        {"type": "surprise"},
        {"type": "resumed", "epoch": 1},
    ]
    for lie in lies:
        async with impostor() as one:
            starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
            identity = (await one.order())["id"]
            one.say(type="started", id=identity)
            process = await starting
            one.say(**{"id": identity, **lie})
            assert "not to be trusted" in await asyncio.wait_for(one.line.gone, 5), lie
            assert (await process.wait()).reason


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


async def test_an_answer_of_another_epoch_is_refused() -> None:
    async with impostor() as one:
        freezing = asyncio.create_task(one.line.quiesce(7))
        await one.order()
        one.say(type="quiesced", epoch=6)
        with pytest.raises(CaptureFailed):
            await asyncio.wait_for(freezing, 5)


async def test_what_is_said_while_it_stands_still_is_heard_afterwards() -> None:
    async with impostor() as one:
        freezing = asyncio.create_task(one.line.quiesce(7))
        assert (await one.order())["type"] == "quiesce"
        one.say(type="quiesced", epoch=7)
        await freezing
        starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
        await asyncio.sleep(0)
        one.line.send({"type": "kill", "id": "y"})
        going_on = asyncio.create_task(one.line.resume(7))
        assert (await one.order())["type"] == "resume"
        one.say(type="resumed", epoch=7)
        await going_on
        killing = await one.order()  # it had been said first
        assert killing["id"] == "y"
        one.say(type="started", id=(await one.order())["id"])
        await starting


async def test_what_waits_for_one_that_does_not_go_on_is_told() -> None:
    async with impostor() as one:
        freezing = asyncio.create_task(one.line.quiesce(7))
        await one.order()
        one.say(type="quiesced", epoch=7)
        await freezing
        starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
        await asyncio.sleep(0)
        one.line.close("over")
        with pytest.raises(Gone):
            await asyncio.wait_for(starting, 5)


async def test_an_agent_that_ends_leaves_nobody_waiting() -> None:
    async with impostor() as one:
        starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
        await one.order()
        one.line.close("over")
        with pytest.raises(Gone):
            await starting
        with pytest.raises(HoldfastError):
            await one.line.ready(1)


async def test_output_that_comes_before_a_task_begins_to_wait_is_not_missed() -> None:
    async with impostor() as one:
        starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
        one.say(type="started", id=(await one.order())["id"])
        process = await starting
        waiting = asyncio.create_task(process.changed())
        process.heard("stdout", b"word")
        await asyncio.wait_for(waiting, 5)
        assert [piece.data for piece in process.replay.after(0)] == [b"word"]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(max_size=60), max_size=10))
def test_no_bytes_break_the_host(blocks: list[bytes]) -> None:
    async def speak() -> None:
        async with impostor() as one:
            for block in blocks:
                one.raw(block)
                await asyncio.sleep(0)
            await asyncio.sleep(0.001)

    failures: list[object] = []

    async def watched() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        await speak()

    asyncio.run(watched())
    assert failures == []
