"""The JavaScript client: its own checks and tests, and the package as users install it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

USES = {
    "use.mjs": 'import { Sandbox, SandboxEvent } from "holdfast";\n',
    "use.cjs": 'const { Sandbox, SandboxEvent } = require("holdfast");\n',
}
CHECK = 'if (SandboxEvent.SANDBOX_RUNNING !== "SANDBOX_RUNNING") throw new Error("no");\n'
CHECK += 'Sandbox.create("nowhere").catch((error) => console.log(error.name, error.kind));\n'


@pytest.fixture(scope="session")
def client(repository: Path) -> Path:
    return repository / "clients/js"


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_it_is_clean_and_its_types_are_those_of_the_schema(client: Path) -> None:
    run(client, "npm", "run", "--silent", "check")
    run(client, "node", "scripts/types.mjs", "--check")


def test_its_own_tests_pass(client: Path) -> None:
    report = json.loads(run(client, "npx", "vitest", "run", "--reporter=json", "--silent"))
    assert report["numFailedTests"] == 0
    assert report["numPassedTests"] == report["numTotalTests"] >= 103


def test_the_lock_names_no_host(client: Path) -> None:
    lock = json.loads((client / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]


def test_the_package_works_where_it_is_installed(client: Path, tmp_path: Path) -> None:
    run(client, "npm", "run", "--silent", "build")
    run(client, "npm", "pack", "--silent", "--pack-destination", str(tmp_path))
    (packed,) = tmp_path.glob("*.tgz")
    (tmp_path / "package.json").write_text('{ "private": true }')
    run(tmp_path, "npm", "install", "--silent", "--offline", "--no-audit", f"./{packed.name}")
    assert [path.name for path in (tmp_path / "node_modules").iterdir() if path.is_dir()] == [
        "holdfast"
    ]  # nothing comes along
    for name, first in USES.items():
        (tmp_path / name).write_text(first + CHECK)
        assert run(tmp_path, "node", name) == "BadInput bad_input\n"

    (tmp_path / "use.ts").write_text(
        'import { Sandbox, type CheckpointInfo, SandboxState } from "holdfast";\n'
        "export async function freeze(url: string): Promise<CheckpointInfo> {\n"
        "  const sandbox = await Sandbox.create(url, { enableCheckpoint: true });\n"
        "  if (sandbox.state !== SandboxState.RUNNING) throw new Error();\n"
        "  // @ts-expect-error: there is no such option\n"
        "  await sandbox.checkpoint({ leave_running: true });\n"
        '  return sandbox.checkpoint({ reason: "typed", timeout: 5 });\n'
        "}\n"
    )
    compiler = str(client / "node_modules/typescript/bin/tsc")
    strict = ("--noEmit", "--strict", "--target", "es2022", "--types", "")
    for module in (("node16", "node16"), ("esnext", "bundler")):
        options = ("--module", module[0], "--moduleResolution", module[1])
        run(tmp_path, "node", compiler, *strict, *options, "use.ts")
