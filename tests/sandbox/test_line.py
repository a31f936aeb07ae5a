"""The line to an agent that may be anybody: nothing it says breaks the host."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sandbox.impostor import Impostor, impostor

from holdfast.model.errors import CaptureFailed, HoldfastError
from holdfast.sandbox.line import Gone, Silent
from holdfast.sandbox.process import UNPAID
from holdfast.sandbox.start import Start
from holdfast.testing.waiting import until


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


@pytest.mark.parametrize("kind", ["started", "failed", "output", "granted", "ended"])
async def test_what_nobody_asked_for_ends_the_line_in_words(kind: str) -> None:
    async with impostor() as one:
        one.say(type=kind, id="x", stream="stdout", bytes=1)
        why = await asyncio.wait_for(one.line.gone, 5)
        assert f"not to be trusted: '{kind}' of a process that" in why


@pytest.mark.parametrize("kind", ["started", "failed"])
async def test_it_is_answered_once(kind: str) -> None:
    async with impostor() as one:
        starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
        identity = (await one.order())["id"]
        for _ in range(2):  # heard together, before anybody knows of the first
            one.say(type=kind, id=identity)
        assert "nobody asked for" in await asyncio.wait_for(one.line.gone, 5)
        await asyncio.gather(starting, return_exceptions=True)


async def _gives_up(one: Impostor, *, after_the_answer: bool = False) -> object:
    """Somebody begins a program and goes away; its identity."""
    starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
    identity = (await one.order())["id"]
    if after_the_answer:
        one.say(type="started", id=identity)
        while identity not in one.line.processes:
            await asyncio.sleep(0)
        assert not starting.done()  # it does not know of it yet
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert await one.order() == {"type": "kill", "id": identity}
    return identity


@pytest.mark.parametrize("after_the_answer", [False, True])
async def test_one_that_nobody_waits_for_is_killed_and_heard_to_its_end(
    after_the_answer: bool,
) -> None:
    async with impostor() as one:
        identity = await _gives_up(one, after_the_answer=after_the_answer)
        if not after_the_answer:
            one.say(type="started", id=identity)
        one.say(type="granted", id=identity, bytes=10)
        await until(lambda: bool(one.line.processes), "it is known")
        process = one.line.processes[str(identity)]
        for said in range(1, 4):
            one.say(b"x" * (UNPAID // 4), type="output", id=identity, stream="stdout")
            while process.balance[0] < said * UNPAID // 4:
                await asyncio.wait_for(process.changed(), 5)
        one.say(b"x" * (UNPAID // 4), type="output", id=identity, stream="stdout")
        # Its end comes behind its output, and that wants to be paid for.
        assert await one.order() == {"type": "credit", "id": identity, "bytes": UNPAID}
        assert process.replay.end == 0  # and is not kept
        one.say(type="ended", id=identity, signal=9)
        await until(lambda: not one.line.processes, "it has ended")
        assert not one.line.gone.done()


async def _is_restored(one: Impostor, *running: tuple[str, int]) -> None:
    resuming = asyncio.create_task(one.line.resume(7, "again", running))
    assert (await one.order())["type"] == "resume"
    one.say(type="resumed", epoch=7)
    for identity, _ in running:
        one.say(b"word", type="output", id=identity, stream="stdout")  # before it hears anything
    await resuming


async def test_what_a_restored_sandbox_runs_for_nobody_is_killed_and_heard_to_its_end() -> None:
    async with impostor() as one:
        await _is_restored(one, ("owes", UNPAID), ("does not", UNPAID - 5))
        assert await one.order() == {"type": "kill", "id": "owes"}
        assert await one.order() == {"type": "credit", "id": "owes", "bytes": UNPAID}
        assert await one.order() == {"type": "kill", "id": "does not"}
        for identity in ("owes", "does not"):
            one.say(type="ended", id=identity, signal=9)
        await until(lambda: not one.line.processes, "they have ended")
        assert not one.line.gone.done()
        one.say(b"word", type="output", id="owes", stream="stdout")  # once is enough
        assert "not to be trusted" in await asyncio.wait_for(one.line.gone, 5)


async def test_what_a_restored_sandbox_never_ran_is_not_believed() -> None:
    async with impostor() as one:
        await _is_restored(one, ("x", 0))
        one.say(type="ended", id="y", code=0)
        assert "not to be trusted" in await asyncio.wait_for(one.line.gone, 5)


async def test_a_late_refusal_is_nobodys() -> None:
    async with impostor() as one:
        one.say(type="failed", id=await _gives_up(one), message="too late")
        starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
        identity = (await one.order())["id"]
        one.say(type="started", id=identity)
        process = await asyncio.wait_for(starting, 5)
        assert process.identity == identity
        assert list(one.line.processes.values()) == [process]  # nothing of what was refused
        assert not one.line.gone.done()


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
        with pytest.raises(Gone):
            await asyncio.wait_for(one.line.resume(7), 5)
        with pytest.raises(Gone):  # nobody waits for it to move
            await asyncio.wait_for(one.line.start(Start(argv=["x"])), 5)


async def test_an_agent_that_ends_leaves_nobody_waiting() -> None:
    async with impostor() as one:
        starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
        await one.order()
        one.line.close("over")
        with pytest.raises(Gone):
            await starting
        with pytest.raises(HoldfastError):
            await one.line.ready(1)


async def _is_given_up(one: Impostor, *, cancelled: bool) -> None:
    """Somebody freezes it, and does not wait until it answers."""
    freezing = asyncio.create_task(one.line.quiesce(7))
    assert await one.order() == {"type": "quiesce", "epoch": 7}
    if cancelled:
        freezing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await freezing
    else:
        with pytest.raises(CaptureFailed, match="said nothing"):
            await freezing


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_late_answer_lets_it_go_on(cancelled: bool) -> None:
    """Nobody freezes it any more, and it is no enemy."""
    async with impostor(patience=30 if cancelled else 0.05) as one:
        await _is_given_up(one, cancelled=cancelled)
        one.line.send({"type": "kill", "id": "held"})
        one.say(type="quiesced", epoch=7)
        assert await one.order() == {"type": "resume", "epoch": 7}
        one.say(type="resumed", epoch=7)
        assert await one.order() == {"type": "kill", "id": "held"}
        freezing = asyncio.create_task(one.line.quiesce(8))
        assert await one.order() == {"type": "quiesce", "epoch": 8}
        one.say(type="quiesced", epoch=8)
        await freezing
        assert not one.line.gone.done()


async def test_a_silent_agent_is_not_waited_for() -> None:
    async with impostor(patience=0.05) as one:
        await _is_given_up(one, cancelled=False)
        with pytest.raises(Silent, match="does not answer"):
            await asyncio.wait_for(one.line.start(Start(argv=["x"])), 5)
        with pytest.raises(CaptureFailed, match="does not answer"):
            await asyncio.wait_for(one.line.quiesce(8), 5)
        assert not one.line.gone.done()


async def test_a_late_resumed_lets_it_go_on() -> None:
    async with impostor(patience=0.05) as one:
        freezing = asyncio.create_task(one.line.quiesce(7))
        await one.order()
        one.say(type="quiesced", epoch=7)
        await freezing
        with pytest.raises(Silent):
            await one.line.resume(7)
        assert (await one.order())["type"] == "resume"
        starting = asyncio.create_task(one.line.start(Start(argv=["x"])))
        one.say(type="resumed", epoch=7)
        identity = (await one.order())["id"]
        one.say(type="started", id=identity)
        assert (await starting).identity == identity


async def test_an_answer_to_no_question_is_not_believed() -> None:
    async with impostor(patience=0.05) as one:
        await _is_given_up(one, cancelled=False)
        one.say(type="quiesced", epoch=8)
        assert "not to be trusted" in await asyncio.wait_for(one.line.gone, 5)


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
