"""A workflow that remembers where it was: run it, interrupt it at any moment, run it again.

python examples/state.py [DIRECTORY]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from holdfast.model.errors import NotFound
from holdfast.state import StateManager, register

STAGES = ("load", "clean", "enhance", "report")


@register
@dataclass
class Result:
    """What one stage found out. Registered, so that a later run may rebuild it from the file."""

    stage: str
    rows: int
    finished: datetime


def resume_or_begin(directory: Path) -> StateManager:
    """Go on with the run that was interrupted, or begin one."""
    try:
        manager = StateManager.load("nightly", directory=directory)
        print(f"going on after {manager.get_state('current_stage')}")
    except NotFound:
        manager = StateManager("nightly", directory=directory)
        manager.set_state("results", [])
        print("beginning")
    return manager


def main(directory: Path) -> None:
    manager = resume_or_begin(directory)
    results: list[Result] = manager.get_state("results")
    for stage in STAGES[len(results) :]:
        results.append(Result(stage, rows=100 - 10 * len(results), finished=datetime.now(UTC)))
        manager.set_state("current_stage", stage)
        made = manager.checkpoint(f"{stage} done")
        print(f"{made.id}  {made.reason}")

    # The last stage looks wrong: go back to before it, and try something else beside it.
    manager.rollback()
    print(f"back at {manager.get_state('current_stage')}")
    attempt = manager.fork(f"attempt-{len(manager.list_checkpoints())}")
    print(f"{attempt.session_id} comes from {attempt.parent_session}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "sessions"))
