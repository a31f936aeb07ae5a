"""Checkpoints of a session: their report, and what changed between two of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.person import COLOUR, Person

from holdfast import sync
from holdfast.store import Store, open_store

CELL = """
def double(n): return 2 * n
def stays(): return 1
data = [1, 2, 3]
same = "same"
other = 10
password = "secret"
large = b"x" * 100_000
"""
CHANGES = """
def double(n): return n + n
data.append(4)
other = 11
large = b"y" * 100_000
new = 1
del same
"""


@pytest.fixture
def captured(holdfast_home: Path) -> None:
    """Three checkpoints of `session/analysis`; nothing happens before the last one."""
    with open_store() as store, sync.Session(name="analysis", store=store) as session:
        for cell in (CELL, CHANGES, "pass"):
            assert session.execute(cell).error is None
            session.checkpoint(reason="after a cell")


def test_reports_and_changes(run: Run, captured: None) -> None:
    page = run("show", "session/analysis~2").out
    rows = {line.split()[0]: line for line in page.splitlines() if line}
    assert rows["NAME"].split() == ["NAME", "TYPE", "WHAT", "SIZE", "OUTCOME", "TIER", "REASON"]
    assert rows["data"].split()[1:4] == ["list", "3", "items"]
    assert rows["large"].split()[1:4] == ["bytes", "100000", "bytes"]
    assert "same" not in rows["same"].removeprefix("same")  # texts are not shown
    assert "def double(n): return 2 * n" in page
    assert "data = [1, 2, 3]" not in page  # only source that something needs is kept
    assert "from its source" in rows["double"]
    assert "looks like a secret" in rows["password"]
    later = run("show", "session/analysis~1").out
    rows = {line.split()[0]: line.split() for line in later.splitlines() if line}
    assert "CHANGED" in rows["NAME"]
    for name, change in (("data", "changed"), ("new", "added"), ("same", "removed")):
        assert change in rows[name], name
    assert "changed" not in rows["stays"]
    shown = run("show", "session/analysis~1", "--json").json
    assert shown["changes"]["new"] == "added"
    assert any("def double(n): return n + n" in each["text"] for each in shown["cells"])
    types = {each["name"]: (each["type_name"], each["summary"]) for each in shown["report"]}
    assert types["data"] == ("list", "4 items")
    assert types["other"] == ("int", "11")
    assert types["password"] == ("", "")
    report = run("show", "session/analysis~2", "--json").json["report"]
    assert {each["name"]: each["outcome"] for each in report}["password"] == "skipped"

    outcome = run("diff", "session/analysis~2", "session/analysis~1")
    for noise in ("created", "execution_count", "report", "environment"):
        assert noise not in outcome.out
    variables = {
        each["name"]: each["change"]
        for each in run("diff", "session/analysis~2", "session/analysis~1", "--json").json[
            "variables"
        ]
    }
    assert variables == {
        "double": "changed",
        "data": "changed",
        "other": "changed",
        "large": "changed",
        "new": "added",
        "same": "removed",
    }
    rows = {line.split()[0]: line.split()[1] for line in outcome.out.splitlines() if line}
    assert rows["other"] == "changed"
    assert "stays" not in rows
    assert "created" in run("diff", "session/analysis~2", "session/analysis~1", "--all").out

    nothing = run("diff", "session/analysis~1", "session/analysis")
    assert (nothing.code, nothing.out) == (0, "")
    assert "the same content" in nothing.err


def test_code_is_highlighted_at_a_terminal(captured: None) -> None:
    person = Person("show", "session/analysis~1", term="xterm-256color")
    try:
        person.sees("CHANGED")
        person.sees(COLOUR + "def")
        person.sees(COLOUR + "double")
    finally:
        person.leaves()


def odd(store: Store, value: object) -> str:
    with store.draft("session/odd") as draft:
        draft.put("report", value, split="structure")
        draft.put("sources", {"cells": 1}, split="structure")
        draft.put("namespace/small", b"not records")
        return draft.commit().id


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"items": 1},
        {"items": [1]},
        {"items": [{"name": 1, "outcome": "exact"}]},
        {"items": [{"name": "x", "outcome": "fine"}]},
        {"items": [{"name": "x", "outcome": "exact", "size_bytes": "many"}]},
        {"items": []},
        {"items": [{"name": "\x1b[2J", "outcome": "exact"}]},
    ],
)
def test_what_only_looks_like_a_report(run: Run, value: object) -> None:
    with open_store() as store:
        ids = [odd(store, value), odd(store, value)]
    shown = run("show", ids[0])
    assert shown.code == 0
    assert "\x1b" not in shown.out
    assert run("diff", *ids).code == 0


def test_the_report_of_a_stranger_needs_trust(
    run: Run, tmp_path: Path, holdfast_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store() as store:
        made = odd(store, {"items": [{"name": "variable", "outcome": "exact"}]})
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("HOLDFAST_STORE", str(holdfast_home / "store"))
    outcome = run("show", made)
    assert outcome.code == 0
    assert "variable" not in outcome.out
    assert outcome.err.startswith("the report cannot be shown: ")
    assert "variable" in run("show", made, "--trust").out
