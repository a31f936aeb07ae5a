"""Every tool, by the official client, which checks answers against the tools' schemas."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp.types import ResourceTemplateReference
from tests.server.mcp.conftest import Http, refused, serving, told

from holdfast.server.mcp.tools import TOOLS

KEY = "sk-" + "a1B2" * 8


class Agent:
    """Somebody who works on one subject."""

    def __init__(self, http: Http, subject: str) -> None:
        self.http = http
        self.subject = subject

    async def call(self, tool: str, progress: Any = None, **arguments: Any) -> Any:
        async with self.http.connect() as client:
            wanted = {"subject": self.subject, **arguments}
            return await client.call_tool(tool, wanted, progress_callback=progress)

    async def do(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return told(await self.call(tool, **arguments))

    async def run(self, code: str, **more: Any) -> dict[str, Any]:
        return await self.do("execute", code=code, **more)


@pytest.fixture
def agent(http: Http, request: pytest.FixtureRequest) -> Agent:
    return Agent(http, request.node.name.removeprefix("test_"))


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_the_tools_describe_themselves(http: Http, mode: str) -> None:
    async with http.connect(mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        (template,) = (await client.list_resource_templates()).resource_templates
    assert list(tools) == [
        "execute", "checkpoint", "restore", "rollback", "fork", "list", "diff", "read_file",
        "write_file",
    ]  # fmt: skip
    for tool in tools.values():
        assert len(tool.title) > 3
        assert len(tool.description) > 30
        assert tool.input_schema["type"] == tool.output_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert "subject" in tool.input_schema["properties"]
        assert "subject" in tool.output_schema["required"]
    reading = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
    assert reading == {"list", "diff", "read_file"}
    harmless = {name for name, tool in tools.items() if not tool.annotations.destructive_hint}
    assert harmless == reading | {"checkpoint", "fork"}
    assert template.uri_template == "checkpoint://{subject}/{id}"


def test_the_spec_has_the_same_hints(repository: Path) -> None:
    spec = (repository / "spec" / "mcp-v1.md").read_text("utf-8")
    rows = [line.strip("|").split("|") for line in spec.splitlines() if line.startswith("| `")]
    hints = {row[0].strip(" `"): [cell.strip() == "yes" for cell in row[3:7]] for row in rows}
    assert hints == {
        tool.name: [tool.read_only, tool.destructive, tool.idempotent, tool.open_world]
        for tool in TOOLS
    }
    for tool in TOOLS:
        row = next(row for row in rows if row[0].strip(" `") == tool.name)
        for field in {*tool.input_schema["properties"]} - {"subject"}:
            assert f"`{field}`" in row[1]
        for field in {*tool.output_schema["properties"]} - {"subject", "came_back"}:
            assert f"`{field}`" in row[2]


async def test_a_session_is_changed_kept_and_brought_back(agent: Agent) -> None:
    first = await agent.run("import math\ndata = [1, 2, 3]\nprint('loaded')\nsum(data)")
    assert (first["value"], first["stdout"], first["ok"]) == (6, "loaded\n", True)
    assert first["checkpoint"]["subject"] == first["subject"] == f"session/{agent.subject}"

    kept = await agent.do("checkpoint", reason="before cleaning")
    assert kept["checkpoint"]["reason"] == "before cleaning"
    await agent.run("data.clear()")
    changes = await agent.do("diff")
    assert [each["name"] for each in changes["variables"]] == ["data"]

    back = await agent.do("rollback")
    assert (back["came_back"], back["report"]) == (2, [])
    assert (await agent.run("data"))["value"] == [1, 2, 3]

    await agent.run("data = 'gone'")
    at = await agent.do("restore", checkpoint=first["checkpoint"]["short"])
    assert at["checkpoint"]["id"] == first["checkpoint"]["id"]
    assert (await agent.run("data"))["value"] == [1, 2, 3]

    copy = await agent.do("fork", name="attempt")
    assert copy["subject"] == "session/attempt"
    await agent.run("data.append(4)", subject="attempt")
    assert (await agent.run("data"))["value"] == [1, 2, 3]
    third = await agent.do("fork", name="third", checkpoint=first["checkpoint"]["id"])
    assert third["subject"] == "session/third"
    assert (await agent.run("math.floor(data[0])", subject="session/third"))["value"] == 1

    everything = await agent.do("list", subject=None, limit=200)
    names = {each["subject"]: each for each in everything["subjects"]}
    assert names.keys() >= {first["subject"], "session/attempt", "session/third"}
    assert names[first["subject"]]["running"] is True
    few = await agent.do("list", limit=2)
    assert [each["subject"] for each in few["checkpoints"]] == [first["subject"]] * 2


async def test_what_does_not_come_back_is_reported(agent: Agent) -> None:
    made = await agent.run("import sys\nlines = sys._getframe()\nkept = 1")
    back = await agent.do("restore", checkpoint=made["checkpoint"]["id"])
    assert [each["name"] for each in back["report"]] == ["lines"]
    assert back["report"][0]["reason"]


async def test_what_code_raises_is_data(agent: Agent) -> None:
    await agent.run("kept = 1")
    failed = await agent.run("import sys\nprint('so far', file=sys.stderr)\n1 / 0")
    assert failed["ok"] is False
    assert failed["error"]["type"] == "ZeroDivisionError"
    assert failed["stderr"] == "so far\n"
    odd = await agent.run("object")
    assert (odd["value"], odd["text"]) == (None, "<class 'object'>")
    much = await agent.run("print('x' * 200_000)")
    assert (len(much["stdout"]), much["truncated"]) == (50_000, True)
    late = await agent.run("while True: pass", timeout=0.3)
    assert late["error"]["type"] == "TimeoutError"
    dead = await agent.run("import os\nos._exit(3)")
    assert dead["ok"] is False
    back = await agent.run("kept")
    assert (back["value"], bool(back["resumed_from"])) == (1, True)


async def test_progress_and_cancelling(agent: Agent, http: Http) -> None:
    said: list[str | None] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        said.append(message)

    code = "import time\nfor step in range(4):\n    print('step', step)\n    time.sleep(0.5)"
    await agent.run(code, progress=progress)
    assert said
    assert str(said[-1]).startswith("step")
    endless = asyncio.create_task(agent.run("open('begun', 'w').close()\nwhile True: pass"))
    while not (http.workspace / "begun").exists():
        await asyncio.sleep(0.05)
    endless.cancel()
    await asyncio.gather(endless, return_exceptions=True)
    assert (await agent.run("1 + 1"))["value"] == 2  # and not: wait for ever


async def test_files_of_the_workspace(agent: Agent, http: Http, tmp_path: Path) -> None:
    assert (await agent.do("write_file", path="notes/one.txt", content="naïve\n"))["size"] == 7
    assert (await agent.run("open('notes/one.txt').read()"))["value"] == "naïve\n"
    whole = await agent.do("read_file", path="notes/one.txt")
    assert (whole["content"], whole["complete"]) == ("naïve\n", True)
    begun = await agent.do("read_file", path="notes/one.txt", limit=3)  # within the ï
    assert (begun["content"], begun["complete"]) == ("na", False)
    raw = base64.b64encode(b"\x00\xff").decode()
    await agent.do("write_file", path="raw", content=raw, encoding="base64")
    assert refused(await agent.call("read_file", path="raw"))["kind"] == "bad_input"
    assert (await agent.do("read_file", path="raw", encoding="base64"))["content"] == raw


async def test_files_of_nobody_else(agent: Agent, http: Http, tmp_path: Path) -> None:
    async def read(path: str) -> str:
        return str(refused(await agent.call("read_file", path=path))["kind"])

    async def write(path: str, content: str = "x", **more: str) -> str:
        return str(
            refused(await agent.call("write_file", path=path, content=content, **more))["kind"]
        )

    outside = tmp_path / "outside"
    outside.write_text("not yours")
    (http.workspace / "folder").mkdir()
    (http.workspace / "link").symlink_to(outside)
    (http.workspace / "circle").symlink_to("circle")
    os.mkfifo(http.workspace / "pipe")
    before = sorted(http.workspace.rglob("*"))
    for path in (str(outside), "link", "/etc/passwd", "../../../../etc/passwd"):
        assert (await read(path), await write(path)) == ("denied", "denied"), path
    assert outside.read_text() == "not yours"
    for path in ("missing", "circle", "folder", ".", "pipe", "a\0b", "x" * 300):
        assert await read(path) in ("not_found", "bad_input"), path
    for path in ("circle", "folder", ".", "a\0b", "x" * 300):
        assert await write(path) in ("not_found", "bad_input"), path
    assert await write("x", "no base64", encoding="base64") == "bad_input"
    assert sorted(http.workspace.rglob("*")) == before


async def test_secrets_stay_here(tmp_path: Path) -> None:
    with serving(tmp_path, HOLDFAST_TOKEN="the-servers-own", HOLDFAST_KEY="ab" * 32) as server:
        (server.workspace / "secrets.env").write_text(f"OPENAI={KEY}\n")
        agent = Agent(server, "work")
        async with server.connect() as client:
            seen = await agent.run("import os\n[n for n in os.environ if 'HOLDFAST' in n]")
            assert seen["value"] == []
            printed = await agent.run(f"api_key = {KEY!r}\nprint(api_key)\n[api_key, 1]")
            assert (printed["stdout"], printed["value"]) == ("<secret>\n", ["<secret>", 1])
            assert printed["masked"] == 2
            raised = await agent.run("raise ValueError(api_key)")
            assert KEY not in json.dumps(raised)
            refusal = await agent.call("read_file", path="secrets.env")
            assert refused(refusal)["kind"] == "denied"
            (latest, *_) = (await client.list_resources()).resources
            document = (await client.read_resource(latest.uri)).contents[0]
            assert KEY not in document.model_dump_json()
    for path in server.home.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()
    with serving(tmp_path, "--show-secrets", HOLDFAST_KEY="ab" * 32) as server:
        agent = Agent(server, "work")
        assert KEY in (await agent.do("read_file", path="secrets.env"))["content"]
        assert (await agent.run(f"{KEY!r}"))["value"] == KEY


async def test_a_checkpoint_is_a_resource(agent: Agent) -> None:
    made = (await agent.run("answer = 42\ndef double(n): return 2 * n"))["checkpoint"]
    short = f"checkpoint://session%2F{agent.subject}/{made['short']}"
    for uri in (made["uri"], short):
        async with agent.http.connect() as client:
            listed = (await client.list_resources()).resources
            (content,) = (await client.read_resource(uri)).contents
        assert made["uri"] in [each.uri for each in listed]
        document = json.loads(content.text)
        assert document["checkpoint"]["id"] == made["id"]
        variables = {each["name"]: each for each in document["contents"]["variables"]}
        assert variables["answer"]["text"] == "42"
        assert "2 * n" in variables["double"]["source"]
    wrong = ["checkpoint://session/main/nope", "checkpoint://x", "file:///etc/passwd"]
    wrong.append(made["uri"].replace(agent.subject, "other"))
    async with agent.http.connect() as client:
        for uri in wrong:
            with pytest.raises(MCPError, match=r"not_found|bad_input"):
                await client.read_resource(uri)


async def test_completions(agent: Agent) -> None:
    made = await agent.run("1")
    template = ResourceTemplateReference(uri="checkpoint://{subject}/{id}")
    asked = {"name": "subject", "value": f"session/{agent.subject}"[:-2]}
    async with agent.http.connect() as client:
        found = await client.complete(template, asked)
        assert found.completion.values == [f"session/{agent.subject}"]
        asked, known = {"name": "id", "value": ""}, {"subject": agent.subject}
        found = await client.complete(template, asked, context_arguments=known)
        assert found.completion.values == [made["checkpoint"]["id"]]


BAD = [
    ("execute", {}, "bad_input"),
    ("execute", {"code": 1}, "bad_input"),
    ("execute", {"code": "1", "unknown": 2}, "bad_input"),
    ("execute", {"code": "1", "timeout": -1}, "bad_input"),
    ("execute", {"code": "1", "language": "cobol"}, "bad_input"),
    ("execute", {"code": "ls", "language": "bash"}, "unsupported"),
    ("execute", {"code": "1", "subject": "sandbox/box"}, "unsupported"),
    ("execute", {"code": "1", "subject": "state/invoice"}, "unsupported"),
    ("execute", {"code": "1", "subject": "../up"}, "bad_input"),
    ("execute", {"code": "1", "subject": ""}, "bad_input"),
    ("restore", {"checkpoint": "nothing"}, "not_found"),
    ("restore", {"checkpoint": "/etc/passwd"}, "bad_input"),
    ("restore", {"checkpoint": "~1", "subject": "new"}, "not_found"),
    ("rollback", {"subject": "new"}, "not_found"),
    ("rollback", {"to": "nothing"}, "not_found"),
    ("fork", {"name": "a b"}, "bad_input"),
    ("fork", {"name": "x", "checkpoint": "nothing"}, "not_found"),
    ("list", {"subject": "new"}, "not_found"),
    ("list", {"limit": 0}, "bad_input"),
    ("diff", {"before": "nothing"}, "not_found"),
]


async def test_bad_input_is_refused_with_a_hint_and_changes_nothing(agent: Agent) -> None:
    before = await agent.run("value = 1")
    known = {each["subject"] for each in (await agent.do("list", subject=None))["subjects"]}
    for name, arguments, kind in BAD:
        error = refused(await agent.call(name, **arguments))
        assert error["kind"] == kind, (name, arguments, error)
        assert error["request_id"]
    error = refused(await agent.call("fork", name=agent.subject))
    assert error["kind"] == "conflict"
    async with agent.http.connect() as client:
        with pytest.raises(MCPError, match="no such tool"):
            await client.call_tool("nothing", {})
    after = await agent.run("value")
    assert after["value"] == 1
    listed = await agent.do("list")
    assert [each["id"] for each in listed["checkpoints"]] == [
        after["checkpoint"]["id"], before["checkpoint"]["id"],
    ]  # fmt: skip
    now = {each["subject"] for each in (await agent.do("list", subject=None))["subjects"]}
    assert now == known
