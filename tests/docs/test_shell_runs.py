"""The blocks of shell on the pages run, except those that have a reason why not. A new one has to
be run here, or to be given a reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.machine import Machine
from tests.docs.page import blocks
from tests.docs.test_shell_blocks import PAGES, ROOT

from holdfast.state import StateManager
from holdfast.store import open_store
from holdfast.testing.servers import Server

AGENTS = "another program is configured by it, which is not here"
TESTS = "these are what runs this, or take hours, or draw the pictures of the pages"
# Which block, by its page and how it begins, and why it is not run.
LEFT = {
    ("README.md", "claude mcp add holdfast"): AGENTS,
    ("docs/guides/agents.md", "claude mcp add holdfast"): AGENTS,
    ("docs/guides/agents.md", "claude mcp add --transport http"): AGENTS,
    ("CONTRIBUTING.md", "make test"): TESTS,
    ("CONTRIBUTING.md", "make check"): TESTS,
    ("CONTRIBUTING.md", ".venv/bin/python -m pytest -p tests.survival"): TESTS,
    ("docs/guides/choosing-a-store.md", "mkdir /data/team"): "tests/store/test_modes.py makes one",
    ("docs/guides/containers.md", "docker run -d"): "tests/oci/test_engines.py has both engines",
    ("docs/guides/containers.md", "holdfast container export"): "tests/oci/podman has a podman",
    ("docs/guides/server.md", "python3 -m venv /srv"): "tests/system/test_deploy.py sets one up",
    ("docs/guides/server.md", "docker build"): "tests/system/test_image.py builds and runs it",
    ("docs/reference/telemetry.md", "pip install"): "installs packages that no lock of ours has",
}
RUN = {
    ("README.md", "holdfast container install"),
    ("docs/guides/agents.md", "holdfast serve"),
    ("docs/guides/bundles.md", "holdfast bundle make"),
    ("docs/guides/containers.md", "holdfast doctor"),
    ("docs/guides/containers.md", "ctr run -d"),
    ("docs/guides/containers.md", "holdfast container checkpoint"),
    ("docs/guides/containers.md", "holdfast container compact"),
    ("docs/guides/nodes-that-go-away.md", "holdfast init"),
    ("docs/guides/nodes-that-go-away.md", "holdfast doctor"),
    ("docs/guides/nodes-that-go-away.md", "holdfast container finalize --dry-run"),
    ("docs/guides/nodes-that-go-away.md", "holdfast container finalize --leave-running"),
    ("docs/guides/nodes-that-go-away.md", "kubectl cordon"),
}


def shown() -> Iterator[tuple[str, str]]:
    """Every block of shell: its page, and its text."""
    for page in PAGES:
        for block in blocks(page.read_text("utf-8")):
            if block.language in ("sh", "bash", "shell"):
                yield str(page.relative_to(ROOT)), block.text


def text_of(page: str, beginning: str) -> str:
    (text,) = [text for name, text in shown() if name == page and text.startswith(beginning)]
    return text


def lines_of(page: str, beginning: str) -> list[str]:
    return text_of(page, beginning).replace("\\\n", " ").splitlines()


def test_every_block_is_run_or_has_a_reason() -> None:
    known = RUN | LEFT.keys()
    for page, text in shown():
        of = [key for key in known if key[0] == page and text.startswith(key[1])]
        assert len(of) == 1, f"{page}: run this, or say in LEFT why not:\n{text}"
    for page, beginning in known:
        assert text_of(page, beginning), "a block that is gone"
    assert not RUN & LEFT.keys()
    ours = Path(__file__).read_text()
    for page, beginning in RUN:
        said = re.findall(
            rf'(?:text_of|lines_of)\(\s*(\w+|"[^"]+"), "{re.escape(beginning)}"', ours
        )
        assert said, f"nothing here runs {page}: {beginning}"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Machine(tmp_path / "machine") as made:
        yield made


@pytest.mark.timeout(300)
def test_the_container_of_the_readme(machine: Machine) -> None:
    text = text_of("README.md", "holdfast container install")
    machine.type(text)
    life = machine.life()
    (run,) = re.findall(r"ctr run(?:.*\\\n)*.*", text)
    assert machine.create_again(run) == life  # it goes on where it was


CONTAINERS = "docs/guides/containers.md"


@pytest.mark.timeout(400)
def test_the_guide_to_containers(machine: Machine) -> None:
    machine.type(text_of(CONTAINERS, "holdfast doctor"))
    assert machine.asked().count("restart containerd") == 2
    create = text_of(CONTAINERS, "ctr run -d")
    life = machine.create_again(create)
    for line in lines_of(CONTAINERS, "holdfast container checkpoint"):
        said = machine.type(line)
        assert "list" not in line or "shop" in said
        assert machine.create_again(create) == life, line  # whether or not it was stopped
    machine.type(text_of(CONTAINERS, "holdfast container compact"))
    assert machine.create_again(create) == life


NODES = "docs/guides/nodes-that-go-away.md"


@pytest.mark.timeout(400)
def test_the_guide_to_nodes_that_go_away(s3: Server, tmp_path: Path) -> None:
    create = text_of(CONTAINERS, "ctr run -d")
    with Machine(tmp_path / "machine", s3.environ) as machine:
        machine.type(text_of(NODES, "holdfast init"))
        machine.type(text_of(NODES, "holdfast doctor"))
        assert machine.asked()[-1] == "enable --now holdfast-watch"
        assert "holdfast-watch" in machine.type("ls /etc/systemd/system")
        life = machine.create_again(create)
        for said, text in (
            ("shop", text_of(NODES, "holdfast container finalize --dry-run")),
            ("shop", text_of(NODES, "holdfast container finalize --leave-running")),
            ("node-7 may go", text_of(NODES, "kubectl cordon")),
        ):
            assert said in machine.type(text)
            assert machine.create_again(create) == life


def environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if "HOLDFAST" not in name}
    path = f"{Path(sys.executable).parent}:{inherited['PATH']}"
    return {**inherited, "HOME": str(folder), "PATH": path, "HOLDFAST_HOME": str(folder / "home")}


def test_a_bundle_from_the_command_line(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    with open_store(tmp_path / "home/store", environ=environ) as store:
        plan = StateManager("plan", store=store)
        plan.set_state("step", 1)
        plan.checkpoint("first")
        with store.draft("session/work") as draft:
            draft.put("part", b"of a session")
            draft.commit()
    make, show, restore = lines_of("docs/guides/bundles.md", "holdfast bundle make")
    for line in (make, make, show, restore):  # the last one goes back to the one before
        done = subprocess.run(
            ["sh", "-euc", line], env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert "state/plan" in done.stdout or line == make, done.stdout


def test_an_agent_with_a_server(tmp_path: Path) -> None:
    """On a network of its own, where the port that the page names is free."""
    serve, mcp = lines_of("docs/guides/agents.md", "holdfast serve")
    script = f"""
    ip link set lo up
    {serve.partition("#")[0]} > said &
    until grep -q ^token: said; do sleep .1; done
    token=$(sed -n 's/^token: //p' said)
    {mcp.replace("HOLDFAST_TOKEN=...", 'HOLDFAST_TOKEN="$token"')} < asked > answered
    kill $!
    wait $! || true
    """
    client = {"name": "test", "version": "1"}
    offer = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    asked = [
        {"id": 1, "method": "initialize", "params": offer},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in asked]
    (tmp_path / "asked").write_text("".join(lines))
    done = subprocess.run(
        ["unshare", "--net", "sh", "-euc", script],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "tools" in (tmp_path / "answered").read_text()
