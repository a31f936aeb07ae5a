"""Sandboxes under load, and servers killed meanwhile; `benchmarks/load.py` with smaller numbers."""

from __future__ import annotations

import pytest
from benchmarks.load import held

pytestmark = pytest.mark.soak


@pytest.mark.parametrize(("engine", "sandboxes"), [("process", 24), ("gvisor", 8), ("runc", 8)])
async def test_many_are_held_while_executions_go_on(engine: str, sandboxes: int) -> None:
    record = await held(engine, sandboxes, 60, pace=1.0)
    assert record.wrong == []
    assert len(record.times("create")) == sandboxes
    assert len(record.times("exec")) > 5 * sandboxes
    assert len(record.times("checkpoint")) >= sandboxes


async def test_ten_kills_lose_nothing_that_was_checkpointed() -> None:
    record = await held("process", 8, 0, pace=0.5, kills=10)
    assert record.wrong == []
    assert record.back >= 8 * 10  # each time everybody came back, once the lease was over
