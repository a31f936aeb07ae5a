"""Every block of code in the README and in docs/ runs, and prints what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.page import blocks

ROOT = Path(__file__).resolve().parents[2]
CODE = ("```python", "```console", "```ipython")
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if any(each in page.read_text("utf-8") for each in CODE)
]
RUNNER = Path(__file__).with_name("page.py")


@pytest.mark.timeout(300)  # on a machine with much else to do
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_on_a_page_runs(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    environ = {
        **os.environ,
        "HOME": str(tmp_path),
        "HOLDFAST_HOME": str(tmp_path / "holdfast"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
    }
    if '"s3://' in page.read_text("utf-8"):
        environ |= request.getfixturevalue("s3").environ  # a real one
    done = subprocess.run(
        [sys.executable, str(RUNNER), str(page)],
        cwd=work,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout


def test_what_the_readme_shows_can_be_pasted_into_a_file() -> None:
    """Elsewhere a block may await, as notebooks do; a newcomer has a file."""
    text = (ROOT / "README.md").read_text("utf-8")
    shown = [block for block in blocks(text) if block.language == "python"]
    assert len(shown) >= 3  # state, session, sandbox
    for block in shown:
        code = compile(block.text, f"README.md, line {block.line}", "exec")
        assert "holdfast" in code.co_names or "asyncio" in code.co_names, block.text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_untrusted_code_begins_with_its_engine(page: Path) -> None:
    """Under a heading about code that is not trusted, the first server holds hostile code."""
    text = page.read_text("utf-8")
    for heading in re.finditer(r"^#+ .*do not trust.*$", text, re.MULTILINE):
        shown = [block.text for block in blocks(text[heading.end() :]) if "serve" in block.text]
        assert "gvisor" in shown[0], heading[0]
