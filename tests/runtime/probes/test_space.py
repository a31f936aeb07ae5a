from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.runtime.finding import Status
from holdfast.runtime.probes import space


def test_looking_makes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "not/yet/there"
    assert space.probe_space(home).works
    assert space.probe_durability(home).status is Status.OK
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("free", "status"),
    [(1024**2, Status.BROKEN), (1024**3, Status.LIMITED), (100 * 1024**3, Status.OK)],
)
def test_room(free: int, status: Status) -> None:
    assert space.judge_space(Path("/home"), free).status is status


def test_a_place_that_cannot_be_written_is_broken_in_words() -> None:
    """/proc is a place where even root makes no files."""
    finding = space.probe_durability(Path("/proc/holdfast"))
    assert finding.status is Status.BROKEN
    assert "/proc" in finding.detail
    assert finding.mends is not None
