"""A Python session inside a sandbox: it keeps its variables, also where memory is not frozen."""

from __future__ import annotations

import asyncio
import signal

import pytest
from tests.server.conftest import Starter
from tests.server.sandbox_client import attach, created


@pytest.mark.parametrize(
    "engine", ["process", "gvisor", pytest.param("runc", marks=pytest.mark.soak)]
)
async def test_variables_stay_and_come_back(start: Starter, engine: str) -> None:
    server = start("--engine", engine)
    wire = await created(server, enable_checkpoint=True)

    async def run(code: str, **more: object) -> str:
        return await wire.run("python", code, session=True, **more)

    assert await run("x = 20\ndef double(n):\n    return 2 * n") == ""
    assert await run("print(double(x) + 2)") == "42\n"
    assert "ZeroDivisionError" in await run("1 / 0")
    assert wire.heard[-2] == {"event": "exit", "code": 1}
    assert await run("print(x)  # " + "y" * 200_000) == "20\n"
    assert await wire.run("python", "print('x' in globals())") == "False\n"  # a fresh one

    await wire.send(language="python", code="name = input('who? ')\nprint(name)", session=True)
    await wire.send(event="stdin", data="me\n")
    await wire.until("EXECUTION_DONE")
    assert wire.output().endswith("who? me\n")

    await wire.send(
        language="python", code="print('on', flush=True)\nwhile True: pass", session=True
    )
    await wire.until("stdout")
    await wire.send(action="kill_process")
    await wire.until("EXECUTION_DONE")
    assert await run("print(x, name)") == "20 me\n"  # the cell was interrupted, no more

    await wire.send(action="checkpoint")
    await wire.rest()
    assert wire.heard[-1].get("status") == "SANDBOX_CHECKPOINTED", wire.heard[-2:]
    [made] = [each["id"] for each in wire.heard if each["event"] == "checkpoint"]
    back = await attach(server, wire.identity).__aenter__()
    await back.until("RUNNING")
    wire, identity = back, wire.identity
    wire.identity = identity
    assert await run("x += 1\nprint(double(x))") == "42\n"
    await wire.send(action="rollback", checkpoint=made, request_id="r")
    assert (await wire.next())["event"] == "rollback"
    assert await run("print(x)") == "20\n"
    await wire.send(action="kill_sandbox")
    await wire.rest()


STUBBORN = """
import time
while True:
    try:
        print('on', flush=True)  # in here: as soon as that is heard, it may be interrupted
        time.sleep(60)
    except KeyboardInterrupt:
        print('no', flush=True)
"""


async def test_a_cell_that_will_not_end_holds_nobody_up(start: Starter) -> None:
    """Where memory is not frozen, everything but that cell's session is kept, and the log says what
    was not; whoever asks for a checkpoint is told why there is none."""
    first = start("--engine", "process")
    wire = await created(first, enable_checkpoint=True)
    await wire.run("python", "x = 20", session=True)
    await wire.send(action="checkpoint", leave_running=True)
    await wire.until("CHECKPOINTED")
    await wire.run("python", "x = 21", session=True)
    await wire.run("bash", "echo later > /root/file")
    await wire.send(language="python", code=STUBBORN, session=True)
    await wire.until("stdout")
    code, errors = await asyncio.to_thread(first.stop, signal.SIGTERM)
    assert code == 0, errors
    assert "stays as it was written last: a cell goes on" in errors
    second = start("--engine", "process")
    back = await attach(second, wire.identity).__aenter__()
    await back.until("RUNNING")
    assert await back.run("bash", "cat /root/file") == "later\n"
    assert await back.run("python", "print(x)", session=True) == "20\n"

    await back.send(language="python", code=STUBBORN, session=True)
    await back.until("stdout")
    await back.send(action="kill_process")
    await back.until("EXECUTION_DONE")
    await back.send(action="checkpoint")
    assert await back.rest() == (["CHECKPOINTING", "CHECKPOINT_ERROR", "error"], 4000)
    assert "a cell goes on although it was interrupted" in back.heard[-1]["message"]


async def test_what_a_session_cannot_do(start: Starter) -> None:
    server = start("--engine", "process")
    wire = await created(server)
    await wire.send(language="bash", code="echo", session=True)
    assert await wire.until("error") == ["EXECUTION_ERROR", "error"]
    await wire.send(argv=["true"], session=True)
    assert await wire.until("error") == ["EXECUTION_ERROR", "error"]
    await wire.send(action="kill_sandbox")
    await wire.rest()
