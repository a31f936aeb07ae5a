"""Tokens with quotas: what they open, and what is answered at the limit."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.conftest import HOLDFAST, Server, Starter
from tests.server.sandbox_client import Wire, attach, created

from holdfast import Sandbox
from holdfast.model.errors import BadInput, Busy
from holdfast.server.tenants import read

ONE, TWO = "token-of-the-first-one", "token-of-the-second-one"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    digest = hashlib.sha256(TWO.encode()).hexdigest()
    path.write_text(f'[one]\ntoken = "{ONE}"\nsandboxes = 1\n\n[two]\nsha256 = "{digest}"\n')
    return path


async def refused(server: Server, **options: object) -> dict[str, object]:
    async with Wire(server, "/create") as wire:
        await wire.send(**options)
        assert await wire.rest() == (["CREATING", "CREATION_ERROR", "error"], 4000)
        return wire.heard[-1]


async def kill(wire: Wire) -> None:
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_at_the_quota_there_is_an_answer(start: Starter, tokens: Path) -> None:
    server = start("--engine", "process", "--tokens", str(tokens), "--quota", "2")
    one, two = replace(server, token=ONE), replace(server, token=TWO)
    first = await created(one, enable_checkpoint=True)
    told = await refused(one)
    assert (told["kind"], told["hint"]) == ("busy", "end one, then try again")
    assert "quota of this token is 1" in str(told["message"])
    with one.client(ONE) as client:
        answer = client.post("/execute", content="print(1)")
        assert (answer.status_code, answer.json()["error"]["kind"]) == (429, "busy")
        assert answer.headers["Retry-After"] == "1"
    with pytest.raises(Busy):
        await Sandbox.create(server.address, token=ONE)
    # A copy counts, too; and so does one that comes back.
    await first.send(action="fork", count=1, request_id="f")
    assert (await first.next())["kind"] == "busy"
    await first.send(action="checkpoint")
    await first.rest()
    other = await created(one)
    async with attach(one, first.identity) as back:
        assert await back.rest() == (["RESTORE_ERROR", "error"], 4000)
        assert back.heard[-1]["kind"] == "busy"
    # Others have room all the time: two as the default, the server's own token as much as there is.
    more = [await created(two), await created(two), await created(server)]
    assert (await refused(two))["kind"] == "busy"
    for wire in (other, *more):
        await kill(wire)
    async with attach(one, first.identity) as back:
        assert await back.until("RUNNING") == ["RESTORING", "RUNNING"]
        await kill(back)
    with server.client(server.token) as client:
        assert "holdfast_sandboxes_refused_total 6" in client.get("/metrics").text


async def test_a_tenants_token_leads_to_sandboxes_only(start: Starter, tokens: Path) -> None:
    server = start("--engine", "process", "--tokens", str(tokens))
    wire = await created(server)
    with server.client(ONE) as client:
        for path in ("/v1/sandboxes", "/v1/subjects", "/", "/v1/templates", "/metrics", "/plain"):
            answer = client.get(path, headers={"Accept": "text/html"})
            assert answer.status_code == 403, path
        assert client.delete(f"/v1/sandboxes/{wire.identity[0]}").status_code == 403
        assert "sandboxes" not in client.get("/status").json()
        assert client.post("/execute", content="print(1)").text == "1\n"
    with server.client("no token of anybody") as client:
        assert client.post("/execute", content="print(1)").status_code == 401
    await kill(wire)


async def test_whoever_is_in_line_is_made_in_turn(start: Starter) -> None:
    server = start(
        *("--engine", "process", "--pool", "0", "--max-starting", "1"),
        *("--max-waiting", "3", "--max-wait", "60"),
    )

    async def one() -> str:
        async with Wire(server, "/create") as wire:
            await wire.send()
            words = []
            while not words or words[-1] not in ("SANDBOX_RUNNING", "SANDBOX_CREATION_ERROR"):
                words.append(str((await wire.next()).get("status")))
            if words[-1] == "SANDBOX_RUNNING":
                await kill(wire)
                return "made"
            return str((await wire.next())["kind"])

    outcomes = await asyncio.gather(*(one() for _ in range(12)))
    assert set(outcomes) == {"made", "busy"}
    assert outcomes.count("made") >= 4  # one at its turn, and three in line


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "tokens.toml"),
        ("[a]\n", "needs a token"),
        ('[a]\ntoken = "short"', "less than 16"),
        ('[a]\nsha256 = "12"', "needs a token"),
        (f'[a]\ntoken = "{ONE}"\nsandboxes = -1', "bad number"),
        (f'[a]\ntoken = "{ONE}"\nboxes = 1', "cannot be read"),
        (f'[a]\ntoken = "{ONE}"\n[b]\ntoken = "{ONE}"', "token of another"),
    ],
)
def test_bad_files_are_refused_in_words(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=why) as refused:
        read(path, None)
    assert ONE not in str(refused.value)


def test_the_server_says_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    argv = [HOLDFAST, "serve", "--port", "0", "--tokens", str(tmp_path / "none")]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, "reading the tokens" in ended.stderr) == (3, True)
