"""Rows of the protocol in which something goes wrong, each heard over the wire of a real server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.conftest import Starter
from tests.server.sandbox_client import attach, created

from holdfast import Sandbox
from holdfast.model.errors import StorageFull
from holdfast.sandbox import limits
from holdfast.store import Store, open_store

PROCESS = ("--engine", "process")
HANDOFF = {"enable_checkpoint": True, "enable_sandbox_handoff": True}


async def test_a_damaged_checkpoint_is_refused_and_kept(
    start: Starter, holdfast_home: Path
) -> None:
    first = start(*PROCESS)
    wire = await created(first, enable_checkpoint=True)
    await wire.run("bash", "head -c 3000000 /dev/urandom > /root/big")
    await wire.send(action="checkpoint")
    await wire.rest()
    first.stop(signal.SIGTERM)  # which forgets what it has at hand
    pack = max(holdfast_home.rglob("*.pack"), key=lambda path: path.stat().st_size)
    with open(pack, "r+b") as file:
        file.seek(pack.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    second = start(*PROCESS)
    for _ in range(2):  # nothing that a first attempt did is in the way of another
        async with attach(second, wire.identity) as back:
            assert await back.rest() == (["RESTORING", "RESTORE_ERROR", "error"], 4000)
    with open_store() as store:
        assert store.head(f"sandbox/{wire.identity[0]}") is not None
        assert store.owner(f"sandbox/{wire.identity[0]}") is None
    with open(pack, "r+b") as file:
        file.seek(pack.stat().st_size // 2)
        file.write(byte)
    third = start(*PROCESS)  # without what the second remembers of that file
    async with attach(third, wire.identity) as back:
        assert await back.until("RUNNING") == ["RESTORING", "RUNNING"]
        assert await back.run("bash", "wc -c < /root/big") == "3000000\n"
        await back.send(action="kill_sandbox")
        await back.rest()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    assert os.geteuid() == 0, "this test needs root, for a disk that is full"
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


async def test_a_checkpoint_that_fails_leaves_the_sandbox_as_it_was(
    start: Starter, small_disk: Path
) -> None:
    server = start(*PROCESS, "--store", str(small_disk / "store"))
    wire = await created(server, enable_checkpoint=True)
    await wire.run("bash", "echo mine > /root/x; head -c 30000000 /dev/urandom > /root/big")
    await wire.send(action="checkpoint")
    assert await wire.rest() == (["CHECKPOINTING", "CHECKPOINT_ERROR", "error"], 4000)
    assert "space" in wire.heard[-1]["message"]
    async with attach(server, wire.identity) as back:
        assert await back.until("RUNNING") == ["RUNNING"]  # it never stopped
        assert await back.run("bash", "cat /root/x; rm /root/big") == "mine\n"
        await back.send(action="checkpoint")
        told = ["CHECKPOINTING", "DELETING", "DELETED", "CHECKPOINTED"]
        assert await back.rest() == (told, 1000)


async def test_memory_that_does_not_fit_leaves_the_sandbox_as_it_was(
    start: Starter, small_disk: Path, holdfast_home: Path
) -> None:
    """The store finds out while the engine is still writing."""
    server = start("--engine", "gvisor", "--store", str(small_disk / "store"))
    wire = await created(server, enable_checkpoint=True)
    hold = "import os, time; x = os.urandom(60 << 20); print('held', flush=True); time.sleep(600)"
    await wire.send(language="python", code=hold)
    await wire.until("stdout")
    await wire.send(action="checkpoint", during_execution=True)
    assert await wire.rest() == (["CHECKPOINTING", "CHECKPOINT_ERROR", "error"], 4000)
    assert "space" in wire.heard[-1]["message"]
    assert list(holdfast_home.rglob("pages.img")) == []
    async with attach(server, wire.identity) as back:
        assert await back.until("RUNNING") == ["RUNNING"]
        await back.send(action="kill_process")
        await back.until("EXECUTION_DONE")
        assert await back.run("bash", "echo alive") == "alive\n"
        await back.send(action="kill_sandbox")
        await back.rest()


def _fill_log(store: Store, subject: str) -> None:
    """To the last byte of the page that its end is in."""
    for number in range(1000):
        store.tag(subject, str(number))


async def test_a_kill_that_fails_is_told_and_can_be_repeated(
    start: Starter, small_disk: Path
) -> None:
    """That nobody shall attach any more must be written down, and there is no room for it."""
    server = start(*PROCESS, "--store", str(small_disk / "store"))
    wire = await created(server, enable_checkpoint=True)
    await wire.run("bash", "echo mine > /root/x")
    await wire.send(action="checkpoint", leave_running=True)
    await wire.until("CHECKPOINTED")
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(bytes(12 << 20))
    with open_store(small_disk / "store") as store, pytest.raises(StorageFull):
        _fill_log(store, f"sandbox/{wire.identity[0]}")
    await wire.send(action="kill_sandbox", request_id="k")
    assert await wire.rest() == (["KILLING", "KILL_ERROR", "error"], 1000)
    assert "space" in wire.heard[-1]["message"] == wire.heard[-2]["message"]
    assert (wire.heard[-1]["kind"], wire.heard[-1]["request_id"]) == ("storage_full", "k")
    async with attach(server, wire.identity) as watching:
        assert await watching.until("RUNNING") == ["RUNNING"]
        with server.client(server.token) as keeper:  # who is not attached
            answer = await asyncio.to_thread(keeper.delete, f"/v1/sandboxes/{wire.identity[0]}")
        assert answer.status_code == 507
        assert await watching.rest() == (["KILLING", "KILL_ERROR", "error"], 1000)
    sandbox = await Sandbox.attach(
        server.address, *wire.identity, token=server.token, enable_auto_reconnect=False
    )
    with pytest.raises(StorageFull, match="space"):
        await sandbox.kill()
    await sandbox.detach()
    async with attach(server, wire.identity) as back:
        assert await back.until("RUNNING") == ["RUNNING"]  # it never stopped
        assert await back.run("bash", "cat /root/x") == "mine\n"
        filler.unlink()
        await back.send(action="kill_sandbox")
        assert await back.rest() == (["KILLING", "DELETING", "DELETED", "KILLED"], 1000)
    async with attach(server, wire.identity) as back:
        assert await back.rest() == (["NOT_FOUND"], 1011)


async def test_a_lost_lease_ends_the_sandbox_here(start: Starter) -> None:
    first, second = start(*PROCESS), start(*PROCESS)
    wire = await created(first, **HANDOFF)
    await wire.run("bash", "echo first > /root/x")
    await wire.send(action="checkpoint", leave_running=True)
    await wire.until("CHECKPOINTED")
    first.process.send_signal(signal.SIGSTOP)  # a machine that hangs
    try:
        async with attach(second, wire.identity) as other:
            assert (await other.until("RUNNING"))[-1] == "RUNNING"
            with open_store() as store:  # what it left for the other is not meant for itself
                head = store.head(f"sandbox/{wire.identity[0]}")
                assert head is not None
                assert "wanted" not in head.tags
            first.process.send_signal(signal.SIGCONT)  # and comes back
            told, code = await wire.rest()
            assert (told, code) == (["LOCK_RENEWAL_ERROR", "DELETING", "DELETED"], 1000)
            assert await other.run("bash", "cat /root/x") == "first\n"
            await other.send(action="kill_sandbox")
            await other.rest()
    finally:
        first.process.send_signal(signal.SIGCONT)


def _groups(home: Path) -> limits.Groups:
    """Of the only sandbox."""
    boxes = [path.name for path in home.glob("run/*/boxes/*")]
    [ours] = [name for name in boxes if limits.left_by(name).folders]
    return limits.left_by(ours)


def _send_all(groups: limits.Groups, number: int) -> None:
    for pid in (groups.folders[0] / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):  # it had just been at its end
            os.kill(int(pid), number)


async def test_a_kill_that_nothing_comes_of_is_told(start: Starter, holdfast_home: Path) -> None:
    wire = await created(start(*PROCESS, "--pool", "0"))
    await wire.send(language="bash", code="echo begun; sleep 1000")
    await wire.until("stdout")
    groups = _groups(holdfast_home)
    _send_all(groups, signal.SIGSTOP)  # the agent is one of them
    try:
        await wire.send(action="kill_process", request_id="k")
        assert await wire.until("error") == ["EXECUTION_FORCE_KILL_ERROR", "error"]
        assert "did not kill it" in wire.heard[-1]["message"]
        assert wire.heard[-1]["request_id"] == "k"
    finally:
        _send_all(groups, signal.SIGCONT)
    assert await wire.until("EXECUTION_DONE") == ["EXECUTION_DONE"]  # what it was told in time
    assert wire.heard[-2] == {"event": "exit", "signal": 9}
    assert await wire.run("bash", "echo next") == "next\n"
    await wire.send(action="kill_process", process_id=[])
    assert await wire.until("error") == ["EXECUTION_FORCE_KILL_ERROR", "error"]
    await wire.send(action="kill_sandbox")
    await wire.rest()


async def test_a_sandbox_that_breaks_is_told(start: Starter, holdfast_home: Path) -> None:
    server = start(*PROCESS, "--pool", "0")
    wire = await created(server)
    _groups(holdfast_home).kill()
    assert await wire.rest() == (["ERROR", "error"], 4000)
    assert "broke" in wire.heard[-1]["message"]
    async with attach(server, wire.identity) as back:
        assert await back.rest() == (["NOT_FOUND"], 1011)


@pytest.mark.parametrize("engine", ["process", "gvisor"])
async def test_a_server_that_stops_puts_many_away_at_once(start: Starter, engine: str) -> None:
    """More than it has threads for: none may wait in one for what another is to do."""
    server = start("--engine", engine)
    wires = [await created(server, enable_checkpoint=True) for _ in range(10)]
    await wires[-1].run("bash", "echo kept > /root/x")
    code, errors = await asyncio.to_thread(server.stop, signal.SIGTERM)
    assert code == 0, errors
    with open_store() as store:
        for wire in wires:
            head = store.head(f"sandbox/{wire.identity[0]}")
            assert head is not None
            assert head.reason == "the server stopped"
