"""The JavaScript client against the real server: from Node, from its README, and in a browser."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright
from tests import spans
from tests.clients.conftest import run
from tests.server.conftest import Server, Starter

TOUR = """
async ({ Sandbox }, url, token) => {
  const output = async (sandbox, code) => (await sandbox.exec("bash", code)).stdout.readAll();
  const sandbox = await Sandbox.create(url, { enableCheckpoint: true, token });
  const seen = { hello: await output(sandbox, "echo hello; echo kept > /root/kept") };
  await sandbox.checkpoint();
  seen.state = sandbox.state;
  const again = await Sandbox.attach(url, sandbox.sandboxId, sandbox.sandboxToken, { token });
  seen.kept = await output(again, "cat /root/kept");
  const forks = await again.fork({ count: 2 });
  seen.forks = await Promise.all(forks.map((fork) => output(fork, "cat /root/kept")));
  await Promise.all([...forks, again].map((each) => each.kill()));
  return seen;
}
"""
SEEN = {
    "hello": "hello\n",
    "state": "checkpointed",
    "kept": "kept\n",
    "forks": ["kept\n", "kept\n"],
}
IN_BROWSER = """
async ([source, url, token]) => {
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  return (%s)(await import(address), url, token);
}
"""
# Does one thing of each kind: answered by statuses, by an id, in the foreground and beside it.
TRACED = """
async ({ Sandbox }, url, token) => {
  const sandbox = await Sandbox.create(url, { enableCheckpoint: true, token });
  const echo = "echo $HOLDFAST_REQUEST_ID";
  const front = await (await sandbox.exec("bash", echo)).stdout.readAll();
  const beside = await (await sandbox.exec("bash", echo, { background: true })).stdout.readAll();
  await sandbox.files.list("/");
  await sandbox.checkpoint({ leaveRunning: true });
  await sandbox.kill();
  return { id: sandbox.requestId, front: front.trim(), beside: beside.trim() };
}
"""
RUNTIMES = {
    "bun": ("node_modules/.bin/bun", "run"),
    "deno": ("node_modules/.bin/deno", "run", "--no-prompt", "--allow-net=127.0.0.1"),
}


@pytest.fixture(scope="module", params=["process", "gvisor"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = str(tmp_path_factory.mktemp("home"))
    with Starter(HOLDFAST_HOME=folder, XDG_CONFIG_HOME=folder, ENGINE=request.param) as starter:
        yield starter("--engine", request.param)


def test_every_flow(built: Path, server: Server, request: pytest.FixtureRequest) -> None:
    engine = request.node.callspec.params["server"]
    report = json.loads(
        run(
            built,
            *("npx", "vitest", "run", "--config", "vitest.live.config.ts", "--reporter=json"),
            HOLDFAST_URL=server.address,
            HOLDFAST_TOKEN=server.token or "",
            HOLDFAST_ENGINE=engine,
        )
    )
    assert report["numFailedTests"] == 0
    # The process engine cannot keep processes alive, so two flows are not for it.
    assert report["numPassedTests"] == (10 if engine == "gvisor" else 8)


def test_the_examples_of_the_docs(
    built: Path, server: Server, tmp_path: Path, repository: Path
) -> None:
    pages = [built / "README.md", repository / "docs/reference/typescript.md"]
    text = "".join(page.read_text() for page in pages)
    blocks = re.findall(r"```ts\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:
        said = re.findall(r"(?:console\.log|process\.stdout\.write)\(.*\); // (.*)", block)
        expected = [line for text in said for line in text.split(", ")]
        values = json.dumps([server.address, server.token])
        source = built / "node_modules/.example.ts"  # where `ws` is found
        script = built / "node_modules/.example.mjs"
        source.write_text(
            f"const [url, token] = {values};\n"
            + block.replace('"holdfast"', json.dumps(str(built / "dist/esm/index.js")))
        )
        options = ("--target=es2022", f"--outfile={script}", "--log-level=error")
        run(built, "node_modules/.bin/esbuild", str(source), *options)
        lines = run(tmp_path, "node", str(script)).split("\n")
        assert [line for line in lines if line] == expected, block


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_with_the_runtimes_own_websocket(
    runtime: str, built: Path, server: Server, tmp_path: Path
) -> None:
    """In an empty folder, where no package `ws` is found."""
    assert told_by(runtime, TOUR, built, server, tmp_path) == SEEN


def told_by(runtime: str, script: str, built: Path, server: Server, folder: Path) -> Any:
    """What a script's function returns, which gets the package, the server's address and token."""
    values = ", ".join(json.dumps(value) for value in (server.address, server.token))
    shutil.copy(built / "dist/esm/index.js", folder / "holdfast.mjs")
    (folder / "script.mjs").write_text(
        'import * as holdfast from "./holdfast.mjs";\n'
        f"console.log(JSON.stringify(await ({script})(holdfast, {values})));\n"
    )
    program, *options = RUNTIMES[runtime]
    return json.loads(run(folder, str(built / program), *options, "script.mjs"))


def test_node_without_a_websocket_says_what_to_do(built: Path, tmp_path: Path) -> None:
    """Node 20 has none, newer ones do."""
    shutil.copy(built / "dist/esm/index.js", tmp_path / "holdfast.mjs")
    (tmp_path / "create.mjs").write_text(
        'import { Sandbox } from "./holdfast.mjs";\n'
        "delete globalThis.WebSocket;\n"
        'const error = await Sandbox.create("http://127.0.0.1:1").catch((error) => error);\n'
        "console.log(error.kind, error.hint);\n"
    )
    said = run(tmp_path, "node", "create.mjs")
    assert said == "unsupported npm install ws, or use Node 22 or newer\n"


@pytest.fixture
def page() -> Iterator[Page]:
    chromium = shutil.which("chromium")
    assert chromium, "chromium is missing: make setup-test installs it"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        # The page is the server's own, whose rules would keep a foreign script out.
        context = browser.new_context(bypass_csp=True)
        yield context.new_page()
        browser.close()


def test_in_a_browser(built: Path, server: Server, page: Page) -> None:
    page.goto(f"{server.address}/status")
    source = (built / "dist/esm/index.js").read_text()
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    seen = page.evaluate(IN_BROWSER % TOUR, [source, server.address, server.token])
    assert seen == SEEN
    assert len(sockets) == 4
    assert server.token is not None
    assert not [url for url in sockets if server.token in url or "token" in url]


def under(identity: str, lines: list[dict[str, Any]], name: str) -> set[str]:
    """What has the id, or the id and a number, under that name."""
    ours = re.compile(re.escape(identity) + r"(:\d+)?")
    return {
        line[name] for line in lines if ours.fullmatch(line.get("holdfast.request_id", "nobody's"))
    }


@pytest.fixture
def traced(tmp_path: Path, holdfast_home: Path) -> Iterator[tuple[Server, Path]]:
    """A server that says what it does in JSON, and the file that its spans go to."""
    hooks, file = spans.starter(tmp_path / "hooks"), tmp_path / "spans"
    options = ("--engine", "gvisor", "--pool", "0", "--log-format", "json")
    with Starter(XDG_CONFIG_HOME=str(tmp_path)) as starter:
        yield starter(*options, PYTHONPATH=hooks, SPANS_TO=str(file)), file


def test_one_id_from_the_client_to_the_engine(
    built: Path, traced: tuple[Server, Path], page: Page, tmp_path: Path
) -> None:
    """From a program, and from a browser, which has only its messages to say it in."""
    server, file = traced
    page.goto(f"{server.address}/status")
    source = (built / "dist/esm/index.js").read_text()
    in_browser = page.evaluate(IN_BROWSER % TRACED, [source, server.address, server.token])
    told = [told_by("bun", TRACED, built, server, tmp_path), in_browser]
    _, errors = server.stop(signal.SIGTERM)
    log = [
        {**line, "holdfast.request_id": line.get("request_id", "nobody's")}
        for line in (json.loads(each) for each in errors.splitlines() if each.startswith("{"))
    ]
    made = [{**each.attributes, "name": each.name} for each in spans.exported(file)]
    for each in told:
        assert each["front"] == each["id"]
        assert re.fullmatch(re.escape(each["id"]) + r":\d+", each["beside"])
        said = under(each["id"], log, "message")
        assert {"execute", "files", "checkpoint", "killsandbox"} <= said
        assert "holdfast.engine" in under(each["id"], log, "logger")
        names = {name.removeprefix("holdfast.") for name in under(each["id"], made, "name")}
        assert {"sandbox.execute", "sandbox.freeze", "store.commit", "engine.command"} <= names
    # Only a program can say it with the first request.
    assert "WEBSOCKET /create" in under(told[0]["id"], log, "message")
