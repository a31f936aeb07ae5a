"""The package as users get it: packed, installed into an empty project, and used from there
against a real server, from ESM, CommonJS and TypeScript."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from tests.client.conftest import server
from tests.clients.conftest import run
from tests.server.conftest import Server

__all__ = ["server"]

# The same text for all of them: TypeScript only has to know what Node's `process` is.
TOUR = """
async function tour() {
  const [url = "", token = ""] = process.argv.slice(2);
  const sandbox = await Sandbox.create(url, { enableCheckpoint: true, token });
  const hello = await sandbox.exec("bash", "read name; echo hello $name; exit 3");
  hello.writeToStdin("you\\n");
  const said = await hello.stdout.readAll();
  const { code } = await hello.wait();
  await sandbox.files.write("/root/kept", "kept");
  const checkpoint = await sandbox.checkpoint({ reason: "packed", timeout: 60_000 });
  const frozen = sandbox.state === SandboxState.CHECKPOINTED;
  const again = await Sandbox.attach(url, sandbox.sandboxId, sandbox.sandboxToken, { token });
  const kept = await again.files.readText("/root/kept");
  const missing = await again.files.read("/none").catch((error) => error instanceof NotFound);
  await again.kill();
  const about = checkpoint.subject === `sandbox/${sandbox.sandboxId}`;
  console.log(JSON.stringify({ said, code, frozen, about, kept, missing, end: again.state }));
}
const touring = tour();
"""
REFUSED = """
touring.catch((error) => console.log(JSON.stringify([error.kind, error.hint])));
"""
SEEN = {
    "said": "hello you\n",
    "code": 3,
    "frozen": True,
    "about": True,
    "kept": "kept",
    "missing": True,
    "end": "killed",
}
NAMES = "{ NotFound, Sandbox, SandboxState }"
IMPORTED = f'import {NAMES} from "holdfast";\n'
REQUIRED = f'const {NAMES} = require("holdfast");\n'
TYPED = IMPORTED + "declare const process: { argv: string[] };\n"
# A source, and what Node runs of it: TypeScript is compiled to ESM, and to CommonJS.
WAYS = {
    "plain.mjs": ("plain.mjs", IMPORTED),
    "plain.cjs": ("plain.cjs", REQUIRED),
    "typed.mts": ("typed.mjs", TYPED),
    "typed.cts": ("typed.cjs", TYPED),
}
# The one that is installed, and others by their paths: which ones were tried is in the README.
NODES = ("node", *filter(None, os.environ.get("HOLDFAST_NODES", "").split(os.pathsep)))
MISTAKEN = """
import { type CheckpointInfo, Sandbox } from "holdfast";
export async function freeze(url: string): Promise<CheckpointInfo> {
  const sandbox = await Sandbox.create(url, { enableCheckpoint: true });
  // @ts-expect-error: there is no such option
  await sandbox.checkpoint({ leave_running: true });
  return sandbox.checkpoint({ reason: "typed", timeout: 5 });
}
"""


@pytest.fixture(scope="module")
def project(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty project with the package in it, and nothing else."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "package.json").write_text('{ "private": true }')
    install(folder, built)
    return folder


def install(project: Path, package: Path) -> None:
    """What is published of a package, as `npm pack` makes it. Nothing is fetched."""
    (packed,) = json.loads(run(package, "npm", "pack", "--json", f"--pack-destination={project}"))
    options = ("--silent", "--offline", "--no-audit", "--no-fund")
    run(project, "npm", "install", *options, f"./{packed['filename']}")


@pytest.fixture(scope="module")
def with_ws(project: Path, built: Path) -> Path:
    """Beside the package that Node 20 needs."""
    alone = [path.name for path in (project / "node_modules").iterdir() if path.is_dir()]
    assert alone == ["holdfast"]  # nothing came along
    install(project, built / "node_modules/ws")
    return project


def compile_(built: Path, project: Path, module: str, resolution: str, *options: str) -> None:
    """Strictly, and without the types of anything else that may be installed."""
    compiler = str(built / "node_modules/typescript/bin/tsc")
    strict = ("--strict", "--target", "es2022", "--types", "")
    how = ("--module", module, "--moduleResolution", resolution)
    run(project, "node", compiler, *strict, *how, *options)


@pytest.fixture(scope="module")
def written(built: Path, with_ws: Path) -> Path:
    """With every script in it, those of TypeScript compiled; its types refuse what there is not."""
    for source, (_, begin) in WAYS.items():
        (with_ws / source).write_text(begin + TOUR)
    (with_ws / "mistaken.mts").write_text(MISTAKEN)
    compile_(built, with_ws, "node16", "node16", "typed.mts", "typed.cts", "mistaken.mts")
    return with_ws


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("source", WAYS)
def test_a_tour(source: str, node: str, written: Path, server: Server) -> None:
    script, _ = WAYS[source]
    assert json.loads(run(written, node, script, server.address, server.token or "")) == SEEN


@pytest.mark.parametrize("node", NODES)
def test_alone(node: str, project: Path, server: Server, tmp_path: Path) -> None:
    """Without `ws`: newer Nodes need nothing beside, and Node 20 says what it needs."""
    shutil.copytree(project / "node_modules/holdfast", tmp_path / "node_modules/holdfast")
    (tmp_path / "tour.mjs").write_text(IMPORTED + TOUR + REFUSED)
    told = json.loads(run(tmp_path, node, "tour.mjs", server.address, server.token or ""))
    if run(tmp_path, node, "-p", "typeof WebSocket").strip() == "function":
        assert told == SEEN
    else:
        assert told == ["unsupported", "npm install ws, or use Node 22 or newer"]


def test_its_types_for_bundlers(built: Path, project: Path) -> None:
    (project / "mistaken.ts").write_text(MISTAKEN)
    compile_(built, project, "esnext", "bundler", "--noEmit", "mistaken.ts")
