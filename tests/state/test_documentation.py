"""The guide's code runs from top to bottom, and so does the example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_guide(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    text = (repository / "docs" / "guides" / "state.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 8
    names: dict[str, object] = {"__name__": __name__}
    for block in blocks:
        exec(compile(block, "state.md", "exec", dont_inherit=True), names)


def test_the_example(repository: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(repository / "examples" / "state.py"), str(tmp_path)]
    outputs = [
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        for _ in range(2)
    ]
    assert outputs[0][0] == "beginning"
    assert [line.split("  ")[1] for line in outputs[0][1:5]] == [
        "load done", "clean done", "enhance done", "report done"
    ]  # fmt: skip
    assert outputs[0][5] == "back at enhance"
    assert outputs[1][0] == "going on after enhance"
    assert outputs[1][1].endswith("report done")
