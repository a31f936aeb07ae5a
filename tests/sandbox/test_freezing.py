"""Sandboxes that are frozen, and go on: also when their agent is slow, or memory is not wanted."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from tests.sandbox.steps import InjectedError, Steps, members

from holdfast.model.errors import CaptureFailed, HoldfastError
from holdfast.protocol.sandbox_messages import CreateRequest, ExecuteRequest
from holdfast.sandbox import keeping
from holdfast.sandbox.contract import Engine
from holdfast.sandbox.engines.gvisor import GvisorEngine
from holdfast.sandbox.engines.process import ProcessEngine
from holdfast.sandbox.engines.runc import RuncEngine
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.live import LiveSandbox
from holdfast.sandbox.member import SandboxMember
from holdfast.sandbox.owning import silence
from holdfast.sandbox.settings import Settings
from holdfast.store import open_store
from holdfast.testing.programs import result
from holdfast.testing.waiting import until

KEPT = CreateRequest(enable_checkpoint=True)
# Writes to a file that it keeps open, and holds more memory than a pause may take to write.
HOLDS = """
import os, time
held = os.urandom(64 << 20)
file = open("/root/open", "w")
file.write("written")
file.flush()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with _fleet(tmp_path, ProcessEngine()) as fleet:
        yield fleet


@asynccontextmanager
async def _fleet(folder: Path, engine: Engine) -> AsyncIterator[Fleet]:
    (folder / "ground").mkdir()
    with open_store(folder / "store") as store:
        fleet = Fleet(store, engine, folder / "ground", Settings(warm=0, patience=0.3))
        try:
            yield fleet
        finally:
            assert await fleet.stop() == []


@contextmanager
def stopped(sandbox: LiveSandbox) -> Iterator[None]:
    """As on a machine that does not get round to it."""
    found = members(sandbox.body.build.name)
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in found:
            os.kill(pid, signal.SIGCONT)


async def told(sandbox: LiveSandbox, code: str) -> str:
    asked = await sandbox.execute(ExecuteRequest(language="bash", code=code))
    done = await result(asked.process)
    sandbox.forget(asked)
    return done.stdout.strip()


async def test_a_slow_agent_keeps_its_sandbox(fleet: Fleet) -> None:
    sandbox, _ = await fleet.create(KEPT)
    await told(sandbox, "echo mine > /root/x")
    with stopped(sandbox):
        with pytest.raises(CaptureFailed, match="said nothing"):
            await fleet.freezer.checkpoint(sandbox, reason="too soon")
        with pytest.raises(HoldfastError, match="does not answer"):
            await told(sandbox, "true")
    assert await told(sandbox, "cat /root/x") == "mine"
    await fleet.freezer.checkpoint(sandbox, reason="now it answers")
    assert fleet.live == {sandbox.identity: sandbox}
    assert fleet.counters["broken"] == 0


async def test_a_bundle_that_gives_up_leaves_it_going(fleet: Fleet) -> None:
    """While the sandbox is being frozen for one."""
    sandbox, _ = await fleet.create(KEPT)
    counted = await Steps().run(lambda: _paused(fleet, sandbox))
    for at in range(len(counted.seen)):
        for way in ("cancel", "timeout_"):
            steps = await Steps(at, way).run(lambda: _paused(fleet, sandbox))
            assert steps.struck
            async with asyncio.timeout(20):
                assert await told(sandbox, "echo on") == "on", steps.what
                await fleet.freezer.checkpoint(sandbox, reason="it can be frozen again")


async def _paused(fleet: Fleet, sandbox: LiveSandbox) -> None:
    member = SandboxMember(fleet, sandbox)
    await member.pause()
    await member.resume()


async def test_no_room_at_hand_strands_nothing(fleet: Fleet) -> None:
    """What is frozen is in the store: that it is not kept on this disk besides is no failure."""
    sandbox, token = await fleet.create(KEPT)
    await told(sandbox, "echo mine > /root/x")
    (fleet_folder(fleet) / "recent").write_text("no folder")
    await fleet.exits.put_away(sandbox, silence, reason="away")
    assert fleet.live == {}
    assert fleet.store.owner(keeping.subject_of(sandbox.identity)) is None
    found = await fleet.find(sandbox.identity, token)
    assert not isinstance(found, LiveSandbox)
    assert await told(await fleet.restore(sandbox.identity, found), "cat /root/x") == "mine"


def fleet_folder(fleet: Fleet) -> Path:
    (sandbox,) = fleet.live.values()
    return sandbox.body.build.folder.parents[1]


@pytest.mark.parametrize("engine", [ProcessEngine, RuncEngine, GvisorEngine])
async def test_a_snapshot_writes_no_memory(tmp_path: Path, engine: type[Engine]) -> None:
    async with _fleet(tmp_path, engine()) as fleet:
        sandbox, _ = await fleet.create(CreateRequest())
        asked = ExecuteRequest(language="python", code=HOLDS, process_id="holds")
        held = await sandbox.execute(asked)
        await until(lambda: held.process.replay.end > 0, "it holds")
        frozen = await sandbox.freeze(memory=False)
        assert not frozen.image.exists()
        await sandbox.thaw()
        frozen.discard()
        made = await fleet.freezer.snapshot(sandbox, "files")
        assert {part.name for part in fleet.store.show(made).parts} == {
            "config",
            "environment",
            "files/upper",
        }
        # What was written is there, although its file is still open.
        other, _ = await fleet.create(CreateRequest(filesystem_snapshot_name="files"))
        assert await told(other, "cat /root/open") == "written"
        assert held.exit is None


async def test_a_client_holds_what_is_brought_back(fleet: Fleet) -> None:
    """Before anybody else can find it, whatever it still has to wait for."""
    request = CreateRequest(enable_checkpoint=True, egress=("example.org",))
    sandbox, token = await fleet.create(request)
    await fleet.exits.put_away(sandbox, silence, reason="away")
    found = await fleet.find(sandbox.identity, token)
    assert not isinstance(found, LiveSandbox)
    held: list[bool] = []

    def hold(sandbox: LiveSandbox) -> None:
        held.append(sandbox.identity in fleet.live)

    restoring = asyncio.create_task(fleet.restore(sandbox.identity, found, hold=hold))
    while not restoring.done():
        await asyncio.sleep(0)
        assert (sandbox.identity in fleet.live) == bool(held)
    assert held == [False]


async def test_a_fork_that_fails_leaves_nothing(fleet: Fleet) -> None:
    """Neither copies that run, nor leases, nor subjects with tokens that nobody has."""
    sandbox, _ = await fleet.create(KEPT)
    await fleet.freezer.checkpoint(sandbox, reason="before")
    counted = await Steps().run(lambda: fleet.fork(sandbox, 2))
    made = counted.result
    assert isinstance(made, list)
    for copy, _ in made:
        await fleet.exits.kill(copy, silence)
    before = {str(each.subject) for each in fleet.store.subjects()}
    head = fleet.store.head(keeping.subject_of(sandbox.identity))
    for step, at in itertools.product((".lease", ".fork"), (0, 1)):
        steps = await Steps(at, "error", step).run(lambda: fleet.fork(sandbox, 2))
        assert isinstance(steps.error, InjectedError)
        assert list(fleet.live) == [sandbox.identity]
        assert {str(each.subject) for each in fleet.store.subjects()} == before
        assert fleet.store.head(keeping.subject_of(sandbox.identity)) == head
        assert await told(sandbox, "echo on") == "on"
