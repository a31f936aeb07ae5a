"""`%load_ext holdfast` in JupyterLab itself, in a browser, with a kernel that dies."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

DEADLINE = 90.0
CELLS = (
    "%load_ext holdfast",
    "import numpy as np\ngrid = np.arange(6.0).reshape(2, 3)\nrow = grid[1]\ngrid.sum()",
    "%checkpoint before the crash",
    "import os\nos.kill(os.getpid(), 9)",
    "%load_ext holdfast",
    "row[0] = 100\nprint('came back', grid.sum(), Out[2])",
    "%log",
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab with one notebook."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "rain.ipynb").write_text(json.dumps(notebook(CELLS)))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (tmp_path / "lab.log").open("w")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "JPY_"))}
    places = ("HOME", "HOLDFAST_HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    command = (sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root")
    server = subprocess.Popen(
        [
            *command,
            f"--ServerApp.port={port}",
            "--ServerApp.ip=127.0.0.1",
            "--ServerApp.port_retries=0",
            f"--ServerApp.root_dir={notes}",
            "--IdentityProvider.token=abc",
            "--LabApp.news_url=None",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ],
        env={**environ, **{name: str(tmp_path / name.lower()) for name in places}},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    address = f"http://127.0.0.1:{port}"
    end = time.monotonic() + DEADLINE
    while True:
        assert server.poll() is None, (tmp_path / "lab.log").read_text()
        assert time.monotonic() < end, (tmp_path / "lab.log").read_text()
        try:
            urllib.request.urlopen(f"{address}/api/status?token=abc", timeout=5).close()
            break
        except OSError:
            time.sleep(0.2)
    yield f"{address}/lab/tree/rain.ipynb?token=abc"
    server.terminate()
    server.wait(30)
    log.close()


@pytest.fixture
def page() -> Iterator[Page]:
    chromium = shutil.which("chromium")
    assert chromium, "chromium is missing: make setup-test installs it"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 1600})
        page.set_default_timeout(DEADLINE * 1000)
        yield page
        browser.close()


@pytest.mark.timeout(300)
def test_a_kernel_that_died_goes_on(lab: str, page: Page) -> None:
    page.goto(lab)
    ready(page)
    said = run(page, 0)
    expect(said).to_contain_text("rain")  # the session is called after the notebook
    expect(run(page, 1)).to_contain_text("15.0")
    run(page, 2)
    run(page, 3, answers=False)
    page.get_by_role("dialog").get_by_role("button", name="Ok").click()
    # The kernel is a new one; JupyterLab calls it "starting" until it is asked for something.
    expect(run(page, 4)).to_contain_text("grid")
    expect(run(page, 5)).to_contain_text("came back 112.0 15.0")
    expect(run(page, 6)).to_contain_text("before the crash")


def ready(page: Page) -> None:
    """Wait for the kernel, which says so at the bottom."""
    expect(page.locator("#jp-main-statusbar")).to_contain_text("| Idle", timeout=DEADLINE * 1000)


def run(page: Page, number: int, *, answers: bool = True) -> Locator:
    """Run a cell by its keys; where its output is."""
    cell = page.locator(".jp-Notebook-cell").nth(number)
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    if answers:
        expect(cell.locator(".jp-InputPrompt")).to_have_text(
            re.compile(r"\[\d+\]:"), timeout=DEADLINE * 1000
        )
    return cell.locator(".jp-OutputArea").first


def notebook(cells: tuple[str, ...]) -> dict[str, object]:
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "cells": [
            {
                "id": f"cell{number}",
                "cell_type": "code",
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": source,
            }
            for number, source in enumerate(cells)
        ],
    }
