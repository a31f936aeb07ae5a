"""Bundles with a real container among their members."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.conftest import run as run

from holdfast import StateManager, open_store
from holdfast.bundle import Bundle
from holdfast.bundle.heads import HeadMember
from holdfast.model.errors import CaptureFailed, Conflict
from holdfast.model.subject import Subject
from holdfast.oci.member import ContainerMember, runs_here
from holdfast.store.store import Store
from holdfast.testing.bundles import Bundle as Container
from holdfast.testing.waiting import eventually

pytestmark = pytest.mark.timeout(300)
# Whole at every moment: it may be frozen between emptying a file and writing it.
WRITE = "echo $i > /count.new; mv /count.new /count"
COUNT = f"i=0; while :; do i=$((i+1)); {WRITE}; sleep .05; done"
SUBJECT = Subject("container", "runc/shop")


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Container]:
    made = Container(tmp_path / "it", ["sh", "-c", COUNT], ["HOLDFAST_NAME=shop"])
    made.set_policy(f'mode = "store"\nstore = "{tmp_path}/store"')
    for name in ("HOLDFAST_HOME", "HOLDFAST_RUN", "HOLDFAST_POLICY"):
        monkeypatch.setenv(name, made.environ[name])
    try:
        made.runc("create")
        made.runc("start")
        eventually(lambda: made.count() > 0, "it counts")
        yield made
    finally:
        made.close()


@pytest.fixture
def store(container: Container, tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as opened:
        yield opened


def goes_on(container: Container) -> None:
    at = container.count()
    eventually(lambda: container.count() > at, "it goes on counting")


async def test_a_container_stands_still_with_the_others(container: Container, store: Store) -> None:
    assert runs_here(SUBJECT)
    seen: list[tuple[str, int]] = []

    class Watching(HeadMember):
        async def capture(self, reason: str, stage: str | None):  # type: ignore[no-untyped-def]
            seen.append((container.status(), container.count()))
            return await super().capture(reason, stage)

    plan = StateManager("plan", store=store)
    plan.checkpoint()
    other = Watching(store, Subject("state", "plan"))
    member = ContainerMember(store, SUBJECT)
    made = await Bundle("all", [other, member]).checkpoint("together", "one")
    assert seen[0][0] == "paused"
    goes_on(container)
    heads = [store.head(each) for each in (SUBJECT, "state/plan", "bundle/all")]
    assert all(heads)
    assert len({store.history(e.subject)[-1].sequence for e in heads if e is not None}) == 1
    assert heads[2] == made
    # While it runs, only its engine can bring it back, and nothing moves.
    with pytest.raises(Conflict, match="only its engine"):
        await Bundle("all", [other, member]).restore(made)
    far = seen[0][1] + 50
    eventually(lambda: container.count() > far, "it is far from there")
    container.runc("checkpoint")  # without leave-running: it ends, and its head moves on
    container.runc("delete")
    container.renew()
    back = Bundle("all", [other, HeadMember(store, SUBJECT)])
    await back.restore(made)
    assert store.head(SUBJECT) == heads[0]
    container.runc("create")
    assert seen[0][1] <= container.count() < far  # the moment of the bundle
    container.runc("start")
    goes_on(container)


def test_from_the_command_line(container: Container, store: Store, run: Run) -> None:
    StateManager("plan", store=store).checkpoint()
    names = (str(SUBJECT), "state/plan")
    made = run("bundle", "make", "typed", *names, "--store", store.url, "--json")
    assert made.code == 0, made.err
    goes_on(container)
    refused = run("bundle", "restore", "bundle/typed", "--store", store.url)
    assert (refused.code, "in use by" in refused.err) == (4, True), refused.err
    container.runc("delete", "--force")
    back = run("bundle", "restore", "bundle/typed", "--store", store.url, "--json")
    assert back.code == 0, back.err
    assert {each["subject"] for each in back.json["checkpoints"]} == {*names, "bundle/typed"}


async def test_what_fails_lets_it_go_on(container: Container, store: Store) -> None:
    class Failing(HeadMember):
        async def capture(self, reason: str, stage: str | None):  # type: ignore[no-untyped-def]
            raise CaptureFailed("it does not work")

    StateManager("plan", store=store).checkpoint()
    members = [Failing(store, Subject("state", "plan")), ContainerMember(store, SUBJECT)]
    with pytest.raises(CaptureFailed, match="does not work"):
        await Bundle("all", members).checkpoint()
    goes_on(container)
    assert store.head(SUBJECT) is None
    assert container.leftovers() == []


def test_whoever_holds_it_and_is_killed(container: Container, store: Store) -> None:
    """The holder of a container dies without a word, and so does its caller."""
    holder = subprocess.Popen(
        [sys.executable, "-m", "holdfast.oci.holding", str(SUBJECT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **container.environ},
        text=True,
    )
    assert holder.stdout is not None
    assert "frozen" in holder.stdout.readline()
    assert container.status() == "paused"
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    eventually(lambda: container.status() == "running", "the guard lets it go on")
    goes_on(container)
    assert store.head(SUBJECT) is None
