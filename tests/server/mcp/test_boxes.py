"""The same tools on sandboxes: a real server, its best engine, and agents that come and go."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from tests.server.conftest import Server, Starter
from tests.server.mcp.conftest import Http, refused, serving, told


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = str(tmp_path_factory.mktemp("server"))
    with Starter(HOLDFAST_HOME=folder, XDG_CONFIG_HOME=folder) as starter:
        yield starter()


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[Http]:
    folder = tmp_path_factory.mktemp("agents")
    with serving(folder, "--server", server.address, HOLDFAST_TOKEN=str(server.token)) as made:
        yield made


async def do(client: Client, tool: str, subject: str, **arguments: Any) -> dict[str, Any]:
    return told(await client.call_tool(tool, {"subject": f"sandbox/{subject}", **arguments}))


async def out(client: Client, code: str, subject: str, language: str = "python") -> str:
    done = await do(client, "execute", subject, code=code, language=language)
    assert done["ok"], done
    return str(done["stdout"])


async def test_the_verbs_on_a_sandbox(http: Http, server: Server) -> None:
    async with http.connect() as client:
        assert await out(client, "x = 6\nprint(x * 7)", "box") == "42\n"
        assert await out(client, "print(x)", "box") == "6\n"
        await do(client, "write_file", "box", path="/root/a.txt", content="one\n")
        assert await out(client, "cat /root/a.txt", "box", "bash") == "one\n"
        failed = await do(client, "execute", "box", code="echo no >&2; exit 3", language="bash")
        assert (failed["ok"], failed["exit_code"], failed["error"]["message"]) == (False, 3, "no")
        late = await do(client, "execute", "box", code="sleep 60", language="bash", timeout=0.5)
        assert late["error"]["type"] == "Timeout"

        first = await do(client, "checkpoint", "box", reason="with one")
        await do(client, "write_file", "box", path="/root/a.txt", content="two\n")
        second = await do(client, "checkpoint", "box")
        changes = await do(client, "diff", "box")
        assert changes["before"] == first["checkpoint"]["id"]
        assert changes["after"] == second["checkpoint"]["id"]

        copy = await do(client, "fork", "box", name="copy")
        assert copy["subject"] == "sandbox/copy"
        await do(client, "rollback", "box", to=first["checkpoint"]["short"])
        assert (await do(client, "read_file", "box", path="/root/a.txt"))["content"] == "one\n"
        assert (await do(client, "read_file", "copy", path="/root/a.txt"))["content"] == "two\n"
        at = await do(client, "restore", "box", checkpoint=second["checkpoint"]["id"])
        assert at["checkpoint"]["id"] == second["checkpoint"]["id"]
        assert (await do(client, "read_file", "box", path="/root/a.txt"))["content"] == "two\n"

        told_of = first["checkpoint"]["id"]
        earlier = await do(client, "fork", "box", name="earlier", checkpoint=told_of)
        assert earlier["subject"] == "sandbox/earlier"
        assert (await do(client, "read_file", "earlier", path="/root/a.txt"))["content"] == "one\n"

        listed = await do(client, "list", "box")
        assert first["checkpoint"]["id"] in [each["id"] for each in listed["checkpoints"]]
        everything = told(await client.call_tool("list", {}))
        names = {each["subject"] for each in everything["subjects"]}
        assert names >= {"sandbox/box", "sandbox/copy"}
        (document,) = (await client.read_resource(first["checkpoint"]["uri"])).contents
        assert "with one" in document.text

        # Nobody is told what lets one in.
        tokens = [path.read_text() for path in http.home.glob("mcp/*/*.json")]
        assert len(tokens) == 3
        said = str([await client.call_tool("list", {}), document])
        for token in tokens:
            assert token.partition('"sandbox_token":"')[2].rstrip('"}') not in said
        assert str(server.token) not in said


async def test_a_sandbox_outlives_its_agent(server: Server, tmp_path: Path) -> None:
    options = ("--server", server.address)
    with serving(tmp_path, *options, HOLDFAST_TOKEN=str(server.token)) as made:
        async with made.connect() as client:
            assert await out(client, "kept = 'still here'\nprint(kept)", "box") == "still here\n"
        os.kill(made.process.pid, signal.SIGKILL)
    passes = [path for path in made.home.glob("mcp/**/*") if path.is_file()]
    assert [oct(path.stat().st_mode & 0o777) for path in passes] == ["0o600"]
    with serving(tmp_path, *options, HOLDFAST_TOKEN=str(server.token)) as made:
        async with made.connect() as client:
            assert await out(client, "print(kept)", "box") == "still here\n"


BAD = [
    ("execute", {"code": "1", "subject": "sandbox/../up"}, "bad_input"),
    ("restore", {"checkpoint": "nothing"}, "not_found"),
    ("rollback", {}, "not_found"),
    ("diff", {}, "not_found"),
    ("fork", {"name": "new", "checkpoint": "~1"}, "not_found"),
    ("fork", {"name": "bad"}, "conflict"),
    ("list", {"subject": "sandbox/nothing"}, "not_found"),
    ("read_file", {"path": "/root/nothing"}, "not_found"),
    ("read_file", {"path": "/etc"}, "bad_input"),
    ("write_file", {"path": "/root/x", "content": "!", "encoding": "base64"}, "bad_input"),
]


async def test_bad_input(http: Http) -> None:
    async with http.connect() as client:
        assert await out(client, "value = 1", "bad") == ""
        for tool, arguments, kind in BAD:
            answer = await client.call_tool(tool, {"subject": "sandbox/bad", **arguments})
            assert refused(answer)["kind"] == kind, (tool, arguments)
        assert await out(client, "print(value)", "bad") == "1\n"


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    with serving(tmp_path, "--server", "http://127.0.0.1:9") as made:
        async with made.connect() as client:
            asked = {"code": "1", "subject": "sandbox/box"}
            error = refused(await client.call_tool("execute", asked))
            assert "cannot be reached" in error["message"]
            assert error["hint"]
            assert told(await client.call_tool("execute", {"code": "1 + 1"}))["value"] == 2
