"""The JavaScript client against the real server: from Node, from its README, and in a browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright
from tests.server.conftest import Server, Starter

IN_BROWSER = """
async ([source, url, token]) => {
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const { Sandbox } = await import(address);
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


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest) -> Path:
    folder = Path(__file__).resolve().parents[2] / "clients/js"
    run(folder, "npm", "run", "--silent", "build")
    return folder


@pytest.fixture(scope="module", params=["process", "gvisor"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = str(tmp_path_factory.mktemp("home"))
    starter = Starter(HOLDFAST_HOME=folder, XDG_CONFIG_HOME=folder, ENGINE=request.param)
    yield starter("--engine", request.param)
    starter.end()


def run(folder: Path, *command: str, **environ: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_flow(client: Path, server: Server, request: pytest.FixtureRequest) -> None:
    engine = request.node.callspec.params["server"]
    report = json.loads(
        run(
            client,
            *("npx", "vitest", "run", "--config", "vitest.live.config.ts", "--reporter=json"),
            HOLDFAST_URL=server.address,
            HOLDFAST_TOKEN=server.token or "",
            HOLDFAST_ENGINE=engine,
        )
    )
    assert report["numFailedTests"] == 0
    # The process engine cannot keep processes alive, so one flow is not for it.
    assert report["numPassedTests"] == (8 if engine == "gvisor" else 7)


def test_the_example_of_the_readme(client: Path, server: Server, tmp_path: Path) -> None:
    (block,) = re.findall(r"```ts\n(.*?)```", (client / "README.md").read_text(), re.DOTALL)
    expected = re.findall(r"console\.log\(.*\); // (.*)", block)
    values = json.dumps([server.address, server.token])
    script = client / "node_modules/.example.mjs"  # where `ws` is found
    script.write_text(
        f"const [url, token] = {values};\n"
        + block.replace('"holdfast"', json.dumps(str(client / "dist/esm/index.js")))
    )
    lines = run(tmp_path, "node", str(script)).split("\n")
    assert [line for line in lines if line] == expected


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


def test_in_a_browser(client: Path, server: Server, page: Page) -> None:
    page.goto(f"{server.address}/status")
    source = (client / "dist/esm/index.js").read_text()
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    seen = page.evaluate(IN_BROWSER, [source, server.address, server.token])
    assert seen == {
        "hello": "hello\n",
        "state": "checkpointed",
        "kept": "kept\n",
        "forks": ["kept\n", "kept\n"],
    }
    assert len(sockets) == 4
    assert server.token is not None
    assert not [url for url in sockets if server.token in url or "token" in url]
