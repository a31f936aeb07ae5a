"""Every row of the flows in spec/sandbox-v1.md is heard over the wire of a real server: where."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
SPEC = HERE.parents[1] / "spec/sandbox-v1.md"
ROWS = {
    "create": "sandboxes.test_create_and_execute sandboxes.test_locks_are_told_with_handoff",
    "create fails": "sandboxes.test_create_fails",
    "attach, live": "sandboxes.test_checkpoint_and_attach"
    " sandboxes.test_attaching_to_a_busy_sandbox_without_reconnecting",
    "attach, restored": "sandboxes.test_locks_are_told_with_handoff"
    " sandboxes.test_a_counter_survives_a_killed_server",
    "no such sandbox": "sandboxes.test_create_and_execute",
    "another client is attached": "sandboxes.test_checkpoint_and_attach",
    "wrong sandbox token": "sandboxes.test_checkpoint_and_attach",
    "restore fails": "troubles.test_a_damaged_checkpoint_is_refused_and_kept",
    "execution": "sandboxes.test_create_and_execute",
    "unknown language; no code": "sandboxes.test_refusals_leave_the_connection_open",
    "an execution while one runs": "sandboxes.test_one_execution_at_a_time_and_killing_it",
    "stdin without data": "sandboxes.test_refusals_leave_the_connection_open",
    "kill_process": "sandboxes.test_one_execution_at_a_time_and_killing_it"
    " troubles.test_a_kill_that_nothing_comes_of_is_told",
    "kill_sandbox": "sandboxes.test_locks_are_told_with_handoff",
    "kill_sandbox fails": "troubles.test_a_kill_that_fails_is_told_and_can_be_repeated",
    "checkpoint": "sandboxes.test_checkpoint_and_attach sandboxes.test_locks_are_told_with_handoff",
    "checkpoint, + `leave_running`": "sandboxes.test_checkpoint_and_attach",
    "checkpoint during an execution": "sandboxes.test_checkpoint_and_attach"
    " sandboxes.test_a_checkpoint_during_an_execution",
    "checkpoint not enabled, or fails": "sandboxes.test_a_checkpoint_that_is_not_enabled"
    " troubles.test_a_checkpoint_that_fails_leaves_the_sandbox_as_it_was",
    "snapshot_filesystem": "sandboxes.test_snapshot_and_fork",
    "reconnect": "sandboxes.test_reconnecting_during_an_execution",
    "idle time over": "sandboxes.test_idle",
    "handed over": "handover.test_attaching_through_another_server_hands_it_over",
    "lease lost": "troubles.test_a_lost_lease_ends_the_sandbox_here",
    "server fault": "troubles.test_a_sandbox_that_breaks_is_told",
}


def test_every_row_has_its_test() -> None:
    flows = SPEC.read_text().partition("### Flows")[2].partition("\n### ")[0]
    told = dict(re.findall(r"^\| (.+?) \| (.+) \|$", flows, re.MULTILINE))
    told = {row: said for row, said in told.items() if row not in ("case", "---")}
    assert told.keys() == ROWS.keys()
    for row, said in told.items():
        source = "".join(_source(*name.split(".")) for name in ROWS[row].split())
        statuses = set(re.findall(r"[A-Z][A-Z_]{4,}", said))
        assert {word for word in statuses if f'"{word}"' not in source} == set(), row


def _source(module: str, test: str) -> str:
    """A test, and what its module says once for all of them."""
    text = (HERE / f"test_{module}.py").read_text()
    found = [node for node in ast.parse(text).body if getattr(node, "name", None) == test]
    assert len(found) == 1, f"there is no {test} in test_{module}.py"
    constants = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    return "".join(ast.get_source_segment(text, node) or "" for node in (*constants, *found))
