"""All engines, for real, through the one suite."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model.errors import HoldfastError
from holdfast.sandbox import roots
from holdfast.sandbox.body import Workshop
from holdfast.sandbox.contract import Engine, Limits
from holdfast.sandbox.engines.gvisor import GvisorEngine
from holdfast.sandbox.engines.namespaces import Namespaces
from holdfast.sandbox.engines.process import ProcessEngine
from holdfast.sandbox.engines.runc import RuncEngine
from holdfast.testing.engines import EngineSuite
from holdfast.testing.freezing import ExactSuite, Make
from holdfast.testing.programs import run


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
        gc.collect()  # what another test left open is not closed in between
        before = os.listdir("/proc/self/fd")
        with pytest.raises(HoldfastError, match="mounting the root"):
            await Workshop(engine, tmp_path / "boxes").make(root, Limits())
        assert os.listdir("/proc/self/fd") == before
        assert not os.listdir(tmp_path / "boxes")


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
