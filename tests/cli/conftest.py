"""What the tests of the command line share: a way to call it, and a store with something in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.main import main
from holdfast.store import Store, open_store

HOLDFAST = Path(sys.executable).with_name("holdfast")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # whatever a document holds
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration directory, so that the user's own settings do not matter."""
    folder = tmp_path / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the command line in this process: quick, with everything but the process itself."""

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main(arguments)
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def holdfast_program() -> Path:
    """The installed program itself."""
    return HOLDFAST


@pytest.fixture
def program(tmp_path: Path) -> Run:
    """Call the installed program, as a person or a script does."""

    def call(
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        stdin: str = "",
        binary: bool = False,
    ) -> Outcome:
        done = subprocess.run(
            [HOLDFAST, *arguments],
            cwd=tmp_path,
            env={**os.environ, **(environ or {})},
            input=stdin.encode(),
            capture_output=True,
            timeout=60,
        )
        out = done.stdout.decode("latin-1" if binary else "utf-8")
        return Outcome(done.returncode, out, done.stderr.decode())

    return call


def fill(store: Store, name: str = "state/demo", count: int = 3) -> list[str]:
    """Checkpoints `step 0`, `step 1`, ...; their ids, oldest first."""
    made = []
    for number in range(count):
        with store.draft(name, reason=f"step {number}", stage="testing") as draft:
            draft.put("value", {"number": number, "same": "x"}, split="structure")
            draft.put("bytes", bytes([number]) * 5000)
            draft.put("still", b"always the same")
            made.append(draft.commit().id)
    return made


@pytest.fixture
def ids(holdfast_home: Path) -> list[str]:
    """Three checkpoints of `state/demo` in the default store, oldest first."""
    with open_store() as store:
        return fill(store)
