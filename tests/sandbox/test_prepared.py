"""Boxes that wait: what is brought back in one is what would have come back in a new one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model.errors import Unsupported
from holdfast.protocol.sandbox_messages import CreateRequest, ExecuteRequest, Limits
from holdfast.runtime.trial import clear, mounts_below
from holdfast.sandbox import contract, limits, roots
from holdfast.sandbox.body import Body, Workshop
from holdfast.sandbox.contract import Build, Engine
from holdfast.sandbox.engines.gvisor import GvisorBox, GvisorEngine
from holdfast.sandbox.engines.process import ProcessEngine
from holdfast.sandbox.engines.runc import RuncEngine
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.live import LiveSandbox
from holdfast.sandbox.owning import silence
from holdfast.sandbox.prepared import MOST_LAYER, prepare
from holdfast.sandbox.roots import Root
from holdfast.sandbox.settings import Settings
from holdfast.sandbox.upper import Fill
from holdfast.store import open_store
from holdfast.testing.freezing import ExactSuite
from holdfast.testing.programs import result
from holdfast.testing.waiting import eventually, until


class Preparing(Workshop):
    """Restores into boxes that waited, which were made with wider limits."""

    async def make(
        self,
        root: Root,
        limits: contract.Limits,
        *,
        network: bool = False,
        fill: Fill | None = None,
        image: Path | None = None,
    ) -> Body:
        if fill is None or image is None:
            return await super().make(root, limits, network=network, fill=fill)
        waiting = await prepare(self, root, replace(limits, memory_bytes=1 << 30, cpus=1.5))
        assert waiting.alive
        assert waiting.fits(root, limits, network=network, layer=0)
        try:
            return await waiting.restore(limits, fill, image)
        except BaseException:
            await waiting.clear()
            raise


class TestRestoredIntoWhatWaited(ExactSuite):
    @pytest.fixture
    def engine(self) -> Engine:
        return GvisorEngine()

    @pytest.fixture
    def workshop(self, engine: Engine, tmp_path: Path) -> Workshop:
        return Preparing(engine, tmp_path / "boxes")


class Unknown(GvisorEngine):
    """A release of runsc whose control socket nobody here knows."""

    speaks = False


@pytest.mark.soak
class TestRestoredByTheCommand(TestRestoredIntoWhatWaited):
    @pytest.fixture
    def engine(self) -> Engine:
        return Unknown()


@pytest.mark.parametrize("made", [ProcessEngine, RuncEngine])
async def test_who_cannot_says_so(made: type[Engine], tmp_path: Path) -> None:
    root = roots.default(tmp_path / "root")
    with pytest.raises(Unsupported, match="prepared"):
        await prepare(Workshop(made(), tmp_path / "boxes"), root, contract.Limits())
    assert not os.listdir(tmp_path / "boxes")


class Noting(GvisorEngine):
    """An engine that remembers what waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[GvisorBox] = []

    async def prepare(self, build: Build) -> GvisorBox:
        self.waited.append(await super().prepare(build))
        return self.waited[-1]


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    (tmp_path / "ground").mkdir()
    engine = Noting()
    with open_store(tmp_path / "store") as store:
        fleet = Fleet(store, engine, tmp_path / "ground", Settings(warm=1))
        fleet.begin()
        try:
            await until(lambda: fleet.ready == fleet.prepared == 1, "both stand ready", 60)
            yield fleet
        finally:
            assert await fleet.stop() == []
    assert mounts_below(tmp_path) == []
    for box in engine.waited:
        assert limits.left_by(box.folder.parent.name).folders == ()


def waited(fleet: Fleet) -> list[GvisorBox]:
    assert isinstance(fleet.engine, Noting)
    return fleet.engine.waited


async def told(sandbox: LiveSandbox, code: str) -> str:
    asked = await sandbox.execute(ExecuteRequest(language="bash", code=code))
    done = await result(asked.process)
    sandbox.forget(asked)
    return done.stdout.strip()


async def back(fleet: Fleet, sandbox: LiveSandbox, token: str) -> LiveSandbox:
    """Put away, and brought back."""
    await fleet.exits.put_away(sandbox, silence, reason="to come back")
    found = await fleet.find(sandbox.identity, token)
    assert not isinstance(found, LiveSandbox)
    return await fleet.restore(sandbox.identity, found)


async def ready(fleet: Fleet, number: int) -> GvisorBox:
    """The one that waits, when so many have waited."""
    await until(lambda: len(waited(fleet)) == number and fleet.prepared == 1, "one waits")
    return waited(fleet)[-1]


KEPT = CreateRequest(enable_checkpoint=True)


async def test_what_comes_back_takes_it_and_another_takes_its_place(fleet: Fleet) -> None:
    sandbox, token = await fleet.create(KEPT)
    assert await told(sandbox, "echo one > /root/x; ls /etc/hosts") == "/etc/hosts"
    for number in (1, 2):
        box = await ready(fleet, number)
        sandbox = await back(fleet, sandbox, token)
        assert sandbox.body.box is box
        assert await told(sandbox, "cat /root/x; stat -c %U /root") == "one\nuser"
    box = await ready(fleet, 3)
    [(copy, _)] = await fleet.fork(sandbox, 1)
    assert copy.body.box is box
    await told(sandbox, "echo two > /root/x")
    assert await told(copy, "cat /root/x") == "one"
    box = await ready(fleet, 4)
    await fleet.rollback(sandbox)
    assert sandbox.body.box is box
    assert await told(sandbox, "cat /root/x") == "one"


async def test_it_is_held_to_the_limits_of_what_comes_back(fleet: Fleet) -> None:
    asked = Limits(memory_bytes=300 << 20, cpus=0.5)
    sandbox, token = await fleet.create(CreateRequest(enable_checkpoint=True, limits=asked))
    sandbox = await back(fleet, sandbox, token)
    assert sandbox.body.box is waited(fleet)[0]
    assert sandbox.body.build.limits == sandbox.limits
    held = {}
    for folder in limits.left_by(sandbox.body.build.name).folders:
        for name in ("memory.limit_in_bytes", "memory.max", "cpu.cfs_quota_us", "cpu.max"):
            if (file := folder / name).exists():
                held[name.split(".")[0]] = file.read_text().split()[0]
    assert held == {"memory": str(300 << 20), "cpu": "50000"}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (Limits(disk_bytes=64 << 20), "true"),
        (None, f"head -c {MOST_LAYER} /dev/urandom > /root/much"),
    ],
    ids=["another disk", "many files"],
)
async def test_what_does_not_fit_has_one_of_its_own(
    fleet: Fleet, asked: Limits | None, code: str
) -> None:
    sandbox, token = await fleet.create(CreateRequest(enable_checkpoint=True, limits=asked))
    await told(sandbox, f"echo one > /root/x; {code}")
    sandbox = await back(fleet, sandbox, token)
    assert sandbox.body.box not in waited(fleet)
    assert fleet.prepared == 1
    assert await told(sandbox, "cat /root/x") == "one"


async def test_it_takes_no_time_while_it_waits(fleet: Fleet) -> None:
    [box] = waited(fleet)
    [kernel] = [pid for pid in _members(box) if _word(pid, "cmdline").startswith("runsc-sandbox")]
    assert _word(kernel, "stat").rpartition(")")[2].split()[0] == "T"
    sandbox, token = await fleet.create(KEPT)
    assert (await back(fleet, sandbox, token)).body.box is box
    assert _word(kernel, "stat").rpartition(")")[2].split()[0] != "T"


def _members(box: GvisorBox) -> list[str]:
    return (box.groups().folders[0] / "cgroup.procs").read_text().split()


def _word(pid: str, name: str) -> str:
    return Path("/proc", pid, name).read_text()


async def test_one_that_died_meanwhile_is_nobodys(fleet: Fleet) -> None:
    sandbox, token = await fleet.create(KEPT)
    [dead] = waited(fleet)
    dead.groups().kill()
    await until(lambda: not dead.alive, "that is noticed")
    sandbox = await back(fleet, sandbox, token)
    assert sandbox.body.box is not dead
    assert await told(sandbox, "echo here") == "here"
    await ready(fleet, 2)


@pytest.mark.parametrize("source", ["this disk", "the store"])
async def test_what_cannot_be_brought_back_in_it_comes_back_all_the_same(
    fleet: Fleet, source: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Here because it has another folder where something is mounted in every box."""
    sandbox, token = await fleet.create(KEPT)
    await told(sandbox, "echo one > /root/x")
    other = sandbox.body.build.volume.upper / "sys"
    other.mkdir()
    os.setxattr(other, "trusted.overlay.opaque", b"y")
    if source == "this disk":
        sandbox = await back(fleet, sandbox, token)
    else:
        captured = await fleet.freezer.checkpoint(sandbox, reason="to go back to")
        await told(sandbox, "echo two > /root/x")
        await fleet.rollback(sandbox, captured.checkpoint.id)
    assert sandbox.body.box not in waited(fleet)
    assert "in the way of a mount" in caplog.text
    assert await told(sandbox, "cat /root/x") == "one"
    await ready(fleet, 2)


ALONE = """
import asyncio, sys
from pathlib import Path
from holdfast.sandbox import roots
from holdfast.sandbox.body import Workshop
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.engines.gvisor import GvisorEngine
from holdfast.sandbox.prepared import prepare

async def main(folder):
    root = roots.default(folder / "root")
    made = await prepare(Workshop(GvisorEngine(), folder / "boxes"), root, Limits())
    print(made.build.name, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main(Path(sys.argv[1])))
"""


# Killed when it has just been created.
EARLY = """
import asyncio
from holdfast.sandbox.engines.gvisor import GvisorBox

async def wait(self, number):
    print(self._build.name, flush=True)
    await asyncio.sleep(1000)

GvisorBox.wait_for_image = wait
"""


@pytest.mark.parametrize("code", [ALONE, EARLY + ALONE], ids=["waiting", "made"])
def test_none_outlives_a_server_that_was_killed(code: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        groups = limits.left_by(server.stdout.readline().strip())
        members = groups.folders[0] / "cgroup.procs"
        try:
            assert len(members.read_text().split()) > 2
            server.send_signal(signal.SIGKILL)
            server.wait(20)
            eventually(lambda: not members.read_text(), "nothing of it runs")
        finally:
            groups.kill()
            groups.remove()
            clear(tmp_path)
