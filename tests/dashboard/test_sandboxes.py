"""A sandbox under each engine: its console, and two of its checkpoints side by side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.dashboard.conftest import Watched, rows, type_in
from tests.server.conftest import Server, Starter

FIRST = "cd /root; echo old > changed; echo one > length; echo bye > gone; echo as it was > same"
THEN = "cd /root; echo much newer > changed; echo two > length; rm gone; mkdir d; echo new >d/added"


@pytest.fixture(scope="module", params=["process", "gvisor"])
def server(request: pytest.FixtureRequest, home: Path) -> Iterator[Server]:
    with Starter(HOLDFAST_HOME=str(home), XDG_CONFIG_HOME=str(home)) as starter:
        yield starter("--engine", request.param, "--pool", "0")


def checkpoint(page: Page, reason: str) -> None:
    expect(page.locator(".mark.live")).to_have_text("ready")
    page.get_by_role("button", name="Checkpoint").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_role("button", name="Checkpoint").click()
    expect(dialog).to_have_count(0)


def test_its_console_and_what_changed_in_its_files(visit: Watched) -> None:
    page = visit("/run")
    page.get_by_role("button", name="Create").click()
    screen = page.get_by_role("log")
    # The output comes while it runs: it goes on only after that was seen.
    type_in(page, f"{FIRST}; echo out; echo err >&2; read line; echo got $line")
    expect(screen).to_contain_text("out")
    expect(screen.locator(".stderr")).to_contain_text("err")
    page.get_by_label("Its input").fill("typed")
    page.get_by_role("button", name="Send").click()
    expect(screen).to_contain_text("got typed")
    checkpoint(page, "before")
    type_in(page, f"{THEN}; echo so $((1 + 1))")
    expect(screen).to_contain_text("so 2")
    checkpoint(page, "after")

    subject = page.url.partition("/console/")[2]
    page.get_by_role("link", name=subject).click()
    page.get_by_role("link", name="after").click()
    page.get_by_role("link", name="What changed").click()
    expect(page.get_by_label("Files").locator("tbody tr")).to_have_count(4)
    assert rows(page.get_by_label("Files")) == [
        ["root/changed", "changed", "4 B", "11 B"],
        ["root/d/added", "added", "", "4 B"],
        ["root/gone", "removed", "4 B", ""],
        ["root/length", "changed", "4 B", "4 B"],  # no longer than it was
    ]
    page.get_by_role("button", name="Swap").click()
    expect(page.get_by_label("Files").locator("tr", has_text="root/gone")).to_contain_text("added")
