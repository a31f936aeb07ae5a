"""A Python session inside a sandbox: it keeps its variables, also where memory is not frozen."""

from __future__ import annotations

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


async def test_what_a_session_cannot_do(start: Starter) -> None:
    server = start("--engine", "process")
    wire = await created(server)
    await wire.send(language="bash", code="echo", session=True)
    assert await wire.until("error") == ["EXECUTION_ERROR", "error"]
    await wire.send(argv=["true"], session=True)
    assert await wire.until("error") == ["EXECUTION_ERROR", "error"]
    await wire.send(action="kill_sandbox")
    await wire.rest()
