"""All engines, for real, through the one suite."""

from __future__ import annotations

import pytest

from holdfast.sandbox.contract import Engine
from holdfast.sandbox.engines.gvisor import GvisorEngine
from holdfast.sandbox.engines.namespaces import Namespaces
from holdfast.sandbox.engines.process import ProcessEngine
from holdfast.sandbox.engines.runc import RuncEngine
from holdfast.testing.engines import EngineSuite
from holdfast.testing.freezing import FreezingSuite


class TestProcess(EngineSuite):
    @pytest.fixture
    def engine(self) -> Engine:
        return ProcessEngine()


class TestProcessWithoutBubblewrap(EngineSuite):
    @pytest.fixture
    def engine(self) -> Engine:
        return ProcessEngine(launcher=Namespaces())


class TestGvisor(EngineSuite):
    @pytest.fixture
    def engine(self) -> Engine:
        return GvisorEngine()


class Unknown(GvisorEngine):
    """A release of runsc whose control socket nobody here knows: everything goes by its command."""

    speaks = False


@pytest.mark.soak
class TestGvisorByItsCommand(FreezingSuite):
    @pytest.fixture
    def engine(self) -> Engine:
        return Unknown()


def test_the_release_here_is_known() -> None:
    assert GvisorEngine().speaks


class TestRunc(EngineSuite):
    @pytest.fixture
    def engine(self) -> Engine:
        return RuncEngine()
