"""All engines, for real, through the one suite."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.sandbox import roots
from holdfast.sandbox.body import Workshop
from holdfast.sandbox.chores import Chores
from holdfast.sandbox.contract import Engine, Limits
from holdfast.sandbox.engines.gvisor import GvisorEngine
from holdfast.sandbox.engines.namespaces import Namespaces
from holdfast.sandbox.engines.process import ProcessEngine
from holdfast.sandbox.engines.runc import RuncEngine
from holdfast.sandbox.freezing import Freezer
from holdfast.sandbox.leaving import Exits
from holdfast.sandbox.live import LiveSandbox
from holdfast.sandbox.owning import silence
from holdfast.sandbox.recent import Recent
from holdfast.store import open_store
from holdfast.testing.engines import EngineSuite
from holdfast.testing.freezing import ExactSuite, Make
from holdfast.testing.programs import bash, begin, run


class TestProcess(EngineSuite):
    @pytest.fixture
    def engine(self) -> Engine:
        return ProcessEngine()


class TestProcessWithoutBubblewrap(EngineSuite):
    @pytest.fixture
    def engine(self) -> Engine:
        return ProcessEngine(launcher=Namespaces())


# To all threads, and to those of its own once it has said that it will.
BARRIERS = """
import ctypes, os
call = {"x86_64": 324, "aarch64": 283}[os.uname().machine]
print([ctypes.CDLL(None).syscall(call, kind, 0, 0) for kind in (1, 16, 8)])
"""


# Leaves signals pending, as many as one user may have, and says how many those were.
SIGNALS = """
import ctypes, os, resource, signal, sys
resource.setrlimit(resource.RLIMIT_SIGPENDING, (40, 40))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
queue = ctypes.CDLL(None).sigqueue
sent = 0
while sent < 100 and queue(os.getpid(), int(signal.SIGRTMIN), None) == 0:
    sent += 1
print(sent, flush=True)
if sys.argv[1] == "stay":
    signal.pause()
"""
MOMENTS = (0.001, 0.02, 0.05, 0.08, 0.12)  # seconds after which somebody goes who has asked
WHOLE = {"config", "environment", "files/upper", "memory/checkpoint.img", "memory/pages.img"}


class TestGvisor(EngineSuite, ExactSuite):
    @pytest.fixture
    def engine(self) -> Engine:
        return GvisorEngine()

    async def test_programs_have_barriers_of_memory(self, make: Make) -> None:
        """Although `runsc` is kept from registering for some of its own."""
        assert (await run(await make(), "python", "-c", BARRIERS)).stdout == "[0, 0, 0]\n"

    async def test_what_cannot_be_begun_leaves_nothing(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        root = replace(roots.default(tmp_path / "root"), lower=tmp_path / "gone")
        before = set(os.listdir("/proc/self/fd"))
        with pytest.raises(HoldfastError, match="mounting the root"):
            await Workshop(engine, tmp_path / "boxes").make(root, Limits())
        assert set(os.listdir("/proc/self/fd")) <= before  # others may close something meanwhile
        assert not os.listdir(tmp_path / "boxes")

    async def test_a_sandbox_goes_on_when_who_froze_it_has_gone(
        self, make: Make, engine: Engine, tmp_path: Path
    ) -> None:
        sandbox = await live(make)
        with open_store(tmp_path / "store") as store:
            chores = Chores()
            freezer = Freezer(store, engine, chores)
            for after in MOMENTS:
                task = asyncio.ensure_future(freezer.checkpoint(sandbox, reason="somebody"))
                await gone(task, after)
                assert (await bash(sandbox.body, "echo alive")).stdout == "alive\n"
            for made in store.list():
                assert {part.name for part in store.show(made).parts} >= WHOLE
            await chores.finish(30)

    async def test_one_that_is_put_away_is_away_when_who_asked_has_gone(
        self, make: Make, engine: Engine, tmp_path: Path
    ) -> None:
        with open_store(tmp_path / "store") as store:
            chores = Chores()
            freezer = Freezer(store, engine, chores)
            for number, after in enumerate(MOMENTS[:3]):
                sandbox = await live(make, number)
                recent = Recent(tmp_path / "recent", 1 << 20)
                exits = Exits({}, freezer, recent, chores, {"ended": 0})
                task = asyncio.ensure_future(exits.put_away(sandbox, silence, reason="somebody"))
                await gone(task, after)
                assert sandbox.away
                assert await exits.stop(sandbox) is None
            made = store.list()
            assert len(made) == 3
            for each in made:
                assert {part.name for part in store.show(each).parts} >= WHOLE
            await chores.finish(30)


async def live(make: Make, number: int = 0) -> LiveSandbox:
    body = await make()
    request = CreateRequest(enable_checkpoint=True)
    return LiveSandbox(f"{number:032x}", "token", request, body, body.build.limits)


async def gone(task: asyncio.Future[object], after: float) -> None:
    await asyncio.wait([task], timeout=after)
    task.cancel()
    await asyncio.wait([task])


class Unknown(GvisorEngine):
    """A release of runsc whose control socket nobody here knows: everything goes by its command."""

    speaks = False


@pytest.mark.soak
class TestGvisorByItsCommand(ExactSuite):
    @pytest.fixture
    def engine(self) -> Engine:
        return Unknown()


def test_the_release_here_is_known() -> None:
    assert GvisorEngine().speaks


class TestRunc(EngineSuite, ExactSuite):
    @pytest.fixture
    def engine(self) -> Engine:
        return RuncEngine()

    async def test_signals_of_neighbours_do_not_count(self, make: Make) -> None:
        """It has users of its own."""
        hog = await begin(await make(), "python", "-c", SIGNALS, "stay")
        while not hog.replay.after(0):
            await asyncio.wait_for(hog.changed(), 60)
        assert int((await run(await make(), "python", "-c", SIGNALS, "end")).stdout) >= 20
