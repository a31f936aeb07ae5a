"""Templates: code is run once, and every new sandbox begins behind it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time

import pytest
from tests.server.conftest import HOLDFAST, Server, Starter
from tests.server.sandbox_client import Wire, attach, created

from holdfast import Sandbox
from holdfast.model.errors import Conflict, NotFound

WARM = "import numpy\nnumbers = numpy.arange(10)\ndef double(n):\n    return 2 * n"


async def kill(wire: Wire) -> None:
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def until_ready(server: Server, name: str) -> None:
    deadline = time.monotonic() + 60
    with server.client(server.token) as client:
        while time.monotonic() < deadline:
            found = client.get("/v1/templates").json()["templates"]
            if any(each["name"] == name and each["ready"] for each in found):
                return
            await asyncio.sleep(0.05)
    raise AssertionError("none stands ready")


@pytest.mark.parametrize("engine", ["gvisor", pytest.param("runc", marks=pytest.mark.soak)])
async def test_new_sandboxes_begin_behind_the_code(start: Starter, engine: str) -> None:
    server = start("--engine", engine)
    with server.client(server.token) as client:
        client.timeout = 120
        made = client.post("/v1/templates", json={"name": "numpy", "code": WARM})
        assert made.status_code == 200, made.text
        assert made.json()["template"]["checkpoint"]["name"] == "templates/numpy"
    await until_ready(server, "numpy")
    wires = [await created(server, template="numpy", enable_checkpoint=True) for _ in range(2)]
    for number, wire in enumerate(wires):
        told = await wire.run(
            "python", f"numbers[0] = {number}\nprint(double(int(numbers.sum())))", session=True
        )
        assert told == f"{2 * (45 + number)}\n"
    places = {await wire.run("bash", "cat /run/holdfast/generation; id -u") for wire in wires}
    assert len(places) == 2  # each knows that it is another
    # One of them is a sandbox like any other: frozen, brought back, and gone.
    await wires[0].send(action="checkpoint")
    await wires[0].rest()
    async with attach(server, wires[0].identity) as back:
        await back.until("RUNNING")
        assert await back.run("python", "print(int(numbers[0]))", session=True) == "0\n"
        await kill(back)
    await kill(wires[1])


async def test_another_server_of_the_store_has_it_ready_from_the_beginning(start: Starter) -> None:
    first = start("--engine", "gvisor")
    wire = await created(first)
    await wire.run(
        "bash",
        "echo kept > /root/file; (while sleep 0.1; do date +%s%N; done) "
        ">/root/ticks 2>/dev/null </dev/null & until test -s /root/ticks; do sleep 0.1; done",
    )
    await wire.send(action="save_template", name="ticking", request_id="r")
    told = await wire.next()
    assert (told["event"], told["request_id"]) == ("template", "r")
    assert await wire.run("bash", "cat /root/file") == "kept\n"  # it goes on
    await kill(wire)
    second = start("--engine", "gvisor", "--template", "ticking", "--template", "missing")
    await until_ready(second, "ticking")
    new = await created(second, template="ticking")
    count = "cat /root/file; n=$(wc -l < /root/ticks)"
    more = "until test $(wc -l < /root/ticks) -gt $n; do sleep 0.1; done"  # or for ever
    assert await new.run("bash", f"{count}; {more}; echo ticks") == "kept\nticks\n"
    await kill(new)


async def test_what_is_refused_and_in_which_words(start: Starter) -> None:
    server = start("--engine", "process")

    async def refused(**options: object) -> tuple[str, str]:
        async with Wire(server, "/create") as wire:
            await wire.send(**options)
            assert await wire.rest() == (["CREATING", "CREATION_ERROR", "error"], 4000)
            return str(wire.heard[-1]["kind"]), str(wire.heard[-1]["message"])

    with server.client(server.token) as client:

        def post(**body: object) -> tuple[int, str]:
            answer = client.post("/v1/templates", json=body)
            return answer.status_code, answer.json().get("error", {}).get("message", "")

        status, message = post(name="bad", code="1 / 0")
        assert status == 422
        assert "ZeroDivisionError" in message
        assert post(name="../x")[0] == 422
        assert post(name="x", language="cobol")[0] == 422
        assert post(name="x", template="none")[0] == 404
        assert client.get("/v1/templates").json() == {"templates": []}
        assert client.get("/v1/sandboxes").json() == {"sandboxes": []}  # nothing is left of them
        assert post(name="files", language="bash", code="echo 1 > /root/one")[0] == 200
        assert post(name="files", template="files", language="bash", code="echo 2 > /root/two") == (
            200,
            "",
        )
    assert (await refused(template="none"))[0] == "not_found"
    assert (await refused(template="a/b"))[0] == "bad_input"
    assert (await refused(template="files", filesystem_snapshot_name="x"))[0] == "bad_input"
    assert (await refused(template="files", image="other"))[0] in ("bad_input", "not_found")
    assert (await refused(template="files", network=True))[0] == "bad_input"
    wire = await created(server, template="files", limits={"processes": 32})
    assert await wire.run("bash", "cat /root/one /root/two") == "1\n2\n"
    await wire.send(language="bash", code="sleep 1000")
    await wire.until("EXECUTION_RUNNING")
    await wire.send(action="save_template", name="busy")
    await wire.until("error")
    assert wire.heard[-1]["kind"] == "conflict"
    await kill(wire)
    with server.client(server.token) as client:
        assert client.delete("/v1/templates/files").json() == {"id": "files"}
        assert client.delete("/v1/templates/files").status_code == 404
    assert (await refused(template="files"))[0] == "not_found"


async def test_the_python_client_and_the_command(start: Starter) -> None:
    server = start("--engine", "process")
    environ = {**os.environ, "HOLDFAST_TOKEN": str(server.token)}

    def holdfast(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [HOLDFAST, "template", *words, "--server", server.address]
        return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=120)

    made = holdfast("create", "maths", "--code", "import math\nradius = 2")
    assert made.returncode == 0, made.stderr
    assert holdfast("list").stdout.splitlines()[1].startswith("maths")
    failed = holdfast("create", "bad", "--code", "raise SystemExit(3)")
    assert (failed.returncode, "warm-up code failed" in failed.stderr) == (11, True)
    async with await Sandbox.create(
        server.address, token=server.token, template="maths"
    ) as sandbox:
        process = await sandbox.exec("python", "print(math.floor(math.pi) * radius)", session=True)
        assert await process.stdout.read_all() == "6\n"
        assert await sandbox.save_template("more")
        busy = await sandbox.exec("bash", "sleep 1000")
        with pytest.raises(Conflict):
            await sandbox.save_template("no")
        await busy.kill()
        await sandbox.kill()
    assert holdfast("delete", "maths").returncode == 0
    with pytest.raises(NotFound):
        await Sandbox.create(server.address, token=server.token, template="maths")
    nobody = subprocess.run(
        [HOLDFAST, "template", "list", "--server", "http://127.0.0.1:1"],
        capture_output=True,
        text=True,
    )
    assert (nobody.returncode, "cannot be reached" in nobody.stderr) == (1, True)
