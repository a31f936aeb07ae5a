"""Every kind of awkward object, together in one session, two processes later."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.session.awkward import ASKED, KINDS, LARGE, WITH_THREADS, Kind, rows

from holdfast import sync
from holdfast.model.report import Report
from holdfast.store import open_store

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "what-comes-back.md"


class Seen:
    """What became of a set of kinds: the reports, and the truth of their checks."""

    def __init__(self, kinds: Sequence[Kind], folder: Path, first: str = "") -> None:
        store = open_store("memory://")
        with sync.Session("awkward", store=store) as session:
            session.execute(f"folder = {str(folder)!r}\n{first}", check=True)
            for number, kind in enumerate(kinds):
                session.execute(kind.own(number)[0], check=True)
            self.made: Report = session.checkpoint().report
        # What was brought back is frozen once more, and only what comes back from that is checked.
        with sync.Session.resume("awkward", store=store) as between:
            between.execute(first, check=True)
            self.again: Report = between.checkpoint().report
        with sync.Session.resume("awkward", store=store) as again:
            assert again.report is not None
            self.restored: Report = again.report
            self.checks: list[object] = []
            for number, kind in enumerate(kinds):
                result = again.execute(kind.own(number)[1])
                self.checks.append(result.error.message if result.error else result.value)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(KINDS, tmp_path_factory.mktemp("awkward"))


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(KINDS, tmp_path_factory.mktemp("copied"), LARGE)


@pytest.fixture(scope="module")
def threaded(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(WITH_THREADS, tmp_path_factory.mktemp("threads"))


@pytest.mark.parametrize("number", range(len(KINDS)), ids=[kind.name for kind in KINDS])
def test_a_kind(together: Seen, number: int) -> None:
    _check(together, KINDS[number], number)


@pytest.mark.parametrize("number", range(len(KINDS)), ids=[kind.name for kind in KINDS])
def test_a_kind_in_a_copy_of_its_process(copied: Seen, number: int) -> None:
    _check(copied, KINDS[number], number)


@pytest.mark.parametrize("number", range(len(WITH_THREADS)), ids=[k.name for k in WITH_THREADS])
def test_a_kind_beside_threads(threaded: Seen, number: int) -> None:
    _check(threaded, WITH_THREADS[number], number)


def _check(seen: Seen, kind: Kind, number: int) -> None:
    names = kind.own(number)[2]
    assert seen.checks[number] is True, [seen.restored[name] for name in names]
    outcomes = {seen.made[name].outcome for name in names}
    worst = max(outcomes, key=["exact", "rebuilt", "placeholder"].index)
    assert worst == kind.outcome, [seen.made[name] for name in names]
    for name in names:
        assert seen.restored[name].outcome == seen.made[name].outcome, seen.restored[name]
        if seen.made[name].outcome == "placeholder":
            assert seen.made[name].reason
            assert seen.again[name].outcome == "placeholder"


def test_most_kinds_come_back_for_real() -> None:
    kinds = [*KINDS, *WITH_THREADS]
    back = [kind for kind in kinds if kind.outcome != "placeholder"]
    assert len(back) / len(kinds) >= 0.85, f"{len(back)} of {len(kinds)}"


def test_every_kind_that_was_asked_for_is_here_and_most_of_those_come_back() -> None:
    kinds = {kind.name: kind for kind in (*KINDS, *WITH_THREADS)}
    assert len(ASKED) == 39
    # By rows, and by what was asked for, which counts only where each of its rows comes back.
    asked = {name: [kinds[row].outcome != "placeholder" for row in rows] for name, rows in
             ASKED.items()}  # fmt: skip
    each = [back for found in asked.values() for back in found]
    assert sum(each) / len(each) >= 0.85, f"{sum(each)} of {len(each)} rows"
    not_all = {name for name, found in asked.items() if not all(found)}
    # A frame under way, a holder that nobody knows, another process's end, a running stack.
    assert not_all == {"generators", "coroutines", "locks", "sockets", "threads"}
    assert 1 - len(not_all) / len(asked) >= 0.85


def test_the_guide_shows_this_table() -> None:
    lines = GUIDE.read_text("utf-8").splitlines()
    shown = [line for line in lines if line.startswith("|")][2:]  # without its head
    assert shown
    assert len(shown) == len(set(shown)), "a row is shown twice"
    missing, more = set(rows()) - set(shown), set(shown) - set(rows())
    assert not missing | more, "\n".join([*sorted(missing), "not in the tests:", *sorted(more)])
