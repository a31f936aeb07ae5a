"""A real container's checkpoint in the page: what is in it, and how the next one is taken."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.dashboard.conftest import Watched, rows

from holdfast.store import Store
from holdfast.testing.bundles import Bundle
from holdfast.testing.waiting import eventually

WORK = """
echo written > /note
rm /etc/doomed
sleep 1000000 &
trap 'echo more >> /n' USR1
echo begun > /n
while :; do wait; done
"""


@pytest.fixture(scope="module")
def container(
    home: Path, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bundle]:
    """It runs under the wrapper, and its checkpoints go where the server looks."""
    folder = tmp_path_factory.mktemp("container")
    made = Bundle(folder / "it", ["sh", "-c", WORK], ["HOLDFAST_NAME=shop"])
    made.environ["HOLDFAST_HOME"] = str(home)
    made.set_policy(f'mode = "store"\nstore = "{home}/store"')
    try:
        made.runc("create")
        made.runc("start")
        eventually((folder / "it/upper/n").exists, "it waits for a signal")
        yield made
    finally:
        made.close()


def test_what_a_container_was(visit: Watched, store: Store, container: Bundle) -> None:
    page = visit("/")
    expect(page.locator(".link")).to_have_text("live")
    container.runc("checkpoint", "--leave-running")
    # It appears by itself: nobody loads the page again.
    page.get_by_role("link", name="shop").click()
    (one,) = (each.subject for each in store.subjects() if each.subject.kind == "container")
    note = page.get_by_role("main").get_by_text("Its engine runs it, not this server.")
    expect(note).to_contain_text(f"holdfast checkpoint {one}")
    expect(page.get_by_role("button", name="Checkpoint")).to_have_count(0)
    page.locator(".tree .row a.reason").click()
    files = page.get_by_label("Files")
    expect(files.locator("tr", has_text="note")).to_contain_text("8 B")
    expect(files.locator("tr", has_text="etc/doomed")).to_contain_text("deleted")
    memory = page.get_by_label("Memory")
    expect(memory).to_contain_text("2 processes go on from there")  # the shell, and its sleep
    expect(memory).to_contain_text("images")
    report = page.get_by_label("Report")
    expect(report.locator("tr", has_text="files/upper")).to_contain_text("exact")
    expect(page.get_by_label("Versions")).to_contain_text("criu")


def test_two_checkpoints_of_a_container_differ_in_their_files(
    visit: Watched, store: Store, container: Bundle
) -> None:
    (one,) = (each.subject for each in store.subjects() if each.subject.kind == "container")
    os.kill(int((container.folder / "pid").read_text()), signal.SIGUSR1)
    written = container.folder / "upper/n"
    eventually(lambda: written.read_text() == "begun\nmore\n", "it has written more")
    container.runc("checkpoint", "--leave-running")
    page = visit(f"/checkpoints/{store.list(one)[0].id}")
    page.get_by_role("link", name="What changed").click()
    expect(page.get_by_label("Files").locator("tbody tr")).not_to_have_count(0)
    # Of its files only one was written to; what it wrote and deleted before is as it was.
    assert [row[:2] for row in rows(page.get_by_label("Files"))] == [["n", "changed"]]
