"""What no tool can beat is measured by doing nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from benchmarks.cells import all_work
from benchmarks.limits import Limits
from benchmarks.session import LIGHT, Row

from benchmarks import limits, session


def test_a_bare_process_answers(tmp_path: Path) -> None:
    path = tmp_path / "mapped"
    path.write_bytes(b"x" * 9000)
    start = time.perf_counter()
    bare, with_more = limits.answered(path, ""), limits.answered(path, "decimal, json")
    assert 0 < bare + with_more < (time.perf_counter() - start) * 1e3


def test_a_bare_process_that_fails_is_no_limit(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="did not answer"):
        limits.answered(tmp_path / "nowhere", "")
    (tmp_path / "mapped").write_bytes(b"x")
    with pytest.raises(RuntimeError, match="did not answer"):
        limits.answered(tmp_path / "mapped", "no_such_library")


LIMITS = Limits(
    copying=1e10, writing=1e9, sync=0.5, filling=1e9, texts=1e7,
    answers={"": 12.0, "numpy": 80.0, "numpy, pandas": 300.0},
)  # fmt: skip


def row(restore: float, step: float = 4.0) -> Row:
    return Row(
        first=1, step=step, pause=1, megabytes=0.5, restore=restore, warm=10, pool=50, right=True
    )


def test_the_limit_of_a_restore_is_a_bare_process_and_what_must_be_made() -> None:
    work = all_work()
    assert session.physical(LIMITS, work["W2"]).restore == 80
    assert session.physical(LIMITS, work["W2s"]).restore == 80 + 1000
    assert session.physical(LIMITS, work["W3"]).restore == 300 + 600


def test_how_far_from_the_limit_is_said_whether_a_goal_is_reached_or_not() -> None:
    light = {LIGHT: session.physical(LIMITS, all_work()["W2"])}
    reached = session.goals({"W2": light | {"holdfast": row(99)}})
    assert "- reached: W2, a restore answers after 99.00 ms, at most 100" in reached
    assert any("takes 19 ms more than one of no tool at all (80)" in line for line in reached)
    missed = session.goals({"W2": light | {"holdfast": row(120)}})
    assert any(
        line.startswith("- **missed**: W2, a restore") and "answers after 80, and from" in line
        for line in missed
    )
    assert any("takes 40 ms more" in line for line in missed)


def test_what_has_no_goal_is_not_judged() -> None:
    found = session.goals({"W2s": {"holdfast": row(450, step=90)}})
    assert [line for line in found if "restore answers" in line] == []
    assert "- reached: W2s, a step takes 90.00 ms, at most 100" in found
