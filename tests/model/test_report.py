"""Reports: what became of each item."""

from __future__ import annotations

import pytest

from holdfast.model.report import Item, Problem, Report, Verification


def test_a_report_is_complete_without_placeholders_and_omissions() -> None:
    exact = Item(name="x", outcome="exact")
    rebuilt = Item(name="f", outcome="rebuilt", reason="from source", tier="source")
    assert Report.of([exact, rebuilt]).complete
    assert Report().complete
    for outcome in ("placeholder", "skipped"):
        assert not Report.of([exact, Item(name="y", outcome=outcome)]).complete


def test_items_are_found_by_name() -> None:
    report = Report.of(Item(name=name, outcome="exact") for name in "abc")
    assert report["b"].name == "b"
    with pytest.raises(KeyError):
        report["d"]


def test_a_report_reads_as_a_mapping() -> None:
    report = Report.of(Item(name=name, outcome="exact") for name in "abc")
    first = report.items[0]
    assert list(report.items()) == [(item.name, item) for item in report]
    assert dict(report) == dict(report.items())
    assert list(dict(report)) == list(report.keys()) == ["a", "b", "c"]
    assert list(report.values()) == list(report) == list(report.items)
    assert "a" in report
    assert first in report
    assert "d" not in report
    assert report.get("a") is first
    assert report.get("d") is None
    assert report == Report((first, *report.items[1:]))  # type: ignore[arg-type]  # a tuple will do
    assert hash(report) == hash(Report.of(report))
    assert list(Report().items()) == []


def test_a_verification_is_ok_without_problems() -> None:
    problem = Problem(where="packs/x.pack", what="a chunk is damaged")
    assert str(problem) == "packs/x.pack: a chunk is damaged"
    assert Verification(deep=True, notes=("a note",)).ok
    assert not Verification(deep=True, problems=(problem,)).ok
