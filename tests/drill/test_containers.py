"""Drills of containers: runc and CRIU bring them back for real, and they never run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import open_store
from holdfast.drill import drill
from holdfast.model.checkpoint import Checkpoint
from holdfast.store.store import Store
from holdfast.testing.bundles import Bundle as Container
from holdfast.testing.waiting import eventually

pytestmark = pytest.mark.timeout(300)
ADDRESS = "10.9.9.9"
SERVE = f"busybox httpd -f -p {ADDRESS}:8080 &"
COUNT = (
    f"{SERVE} echo 1 > /volume/mine; i=0; while :; do i=$((i+1)); echo $i > /count; sleep .05; done"
)


@pytest.fixture(scope="module")
def network() -> Iterator[str]:
    """A network that somebody else made, as engines do, with an address of its own in it."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "1000"])
    try:
        space = f"/proc/{holder.pid}/ns/net"
        eventually(lambda: os.readlink(space) != os.readlink("/proc/self/ns/net"), "it is new")
        for words in (["link", "set", "lo", "up"], ["addr", "add", f"{ADDRESS}/24", "dev", "lo"]):
            subprocess.run(["nsenter", f"--net={space}", "ip", *words], check=True)
        yield space
    finally:
        holder.kill()
        holder.wait()


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory, network: str) -> Iterator[Container]:
    folder = tmp_path_factory.mktemp("node")
    (folder / "volume").mkdir()
    volume = {
        "destination": "/volume",
        "type": "bind",
        "source": str(folder / "volume"),
        "options": ["rbind", "rw"],
    }
    made = Container(folder / "it", ["sh", "-c", COUNT], ["HOLDFAST_NAME=shop"], [volume])
    config = json.loads((made.bundle / "config.json").read_text())
    spaces = config["linux"]["namespaces"]
    next(each for each in spaces if each["type"] == "network")["path"] = network
    (made.bundle / "config.json").write_text(json.dumps(config))
    made.set_policy(f'mode = "store"\nstore = "{folder}/store"')
    try:
        made.runc("create")
        made.runc("start")
        eventually(lambda: made.count() > 0, "it counts")
        eventually(lambda: listening(network), "it listens")
        made.runc("checkpoint", "--leave-running")
        yield made
    finally:
        made.close()


@pytest.fixture
def store(container: Container, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name in ("HOLDFAST_HOME", "HOLDFAST_RUN", "HOLDFAST_POLICY"):
        monkeypatch.setenv(name, container.environ[name])
    with open_store(container.folder.parent / "store") as opened:
        yield opened


@pytest.fixture
def frozen(store: Store) -> Checkpoint:
    head = store.head("container/runc/shop")
    assert head is not None
    return head


def listening(network: str) -> bool:
    done = subprocess.run(
        ["nsenter", f"--net={network}", "cat", "/proc/net/tcp"],
        capture_output=True,
        text=True,
        check=True,
    )
    return ":1F90 00000000:0000 0A" in done.stdout  # port 8080, LISTEN


def groups() -> list[str]:
    top = Path("/sys/fs/cgroup")
    return [
        str(each) for pattern in ("", "*/") for each in top.glob(f"{pattern}holdfast-rehearsal-*")
    ]


async def test_a_container_comes_back_the_same(
    container: Container, store: Store, frozen: Checkpoint, network: str
) -> None:
    before = store.count()
    done = await drill(store, frozen)
    assert (done.problems, done.tried) == ((), True)
    assert all("has ended since" in note for note in done.notes)  # a sleep that was nearly over
    assert store.count() == before
    assert container.status() == "running"  # the container itself was not touched
    assert listening(network)
    at = container.count()
    eventually(lambda: container.count() > at, "it goes on counting")
    assert list((container.folder / "scratch").iterdir()) == []
    assert groups() == []


async def test_a_container_that_cannot_come_back_is_found(
    store: Store, frozen: Checkpoint, tmp_path: Path
) -> None:
    """Every byte is as it was signed, and yet CRIU cannot make it again."""
    store.export(frozen, tmp_path / "frozen.holdfast")
    other = open_store(tmp_path / "other")  # whose subject nobody owns
    frozen = other.import_(tmp_path / "frozen.holdfast")
    names = [part.name for part in other.show(frozen).parts]
    for missing in ("memory/mm-1.img", "memory/core-1.img"):
        assert missing in names
        with other.draft(frozen.subject, reason="planted") as draft:
            for name in names:
                if name != missing:
                    draft.keep(name, of=frozen.id)
            planted = draft.commit()
        done = await drill(other, planted)
        assert (done.ok, done.tried) == (False, True), done
        assert "does not come back" in done.problems[0]


KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.oci.config_handler import read_config
from holdfast.oci.overlay import find_overlay
from holdfast.oci.overview import Overview
from holdfast.oci.rehearsal import rehearsal
from holdfast.oci.store_vault import StoreVault, saved_of
from holdfast.store import open_store

store, place = open_store(sys.argv[1]), Path(sys.argv[2])
place.mkdir()
folder = StoreVault(lambda: store, place, place).fetch(saved_of(store.resolve(sys.argv[3])), place)
overview = Overview()
[(_, record)] = overview.known()
image = find_overlay(record.bundle, read_config(record.bundle))
with rehearsal(folder, image, overview.policy) as cast:
    assert cast.processes
    os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_what_a_killed_drill_left_is_cleared_away_by_the_next(
    container: Container, store: Store, frozen: Checkpoint, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), store.url, tmp_path / "parts", frozen.id],
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert groups() != []
    assert (await drill(store, frozen)).ok
    assert groups() == []
    assert list((container.folder / "scratch").iterdir()) == []


async def test_where_there_is_none_of_its_name_it_is_only_read(
    container: Container, store: Store, frozen: Checkpoint
) -> None:
    container.runc("delete", "--force")
    done = await drill(store, frozen)
    assert (done.ok, done.tried) == (True, False)
    assert "its image" in done.notes[0]
