"""`prune` and `delete`: the plan, the deed, and every policy."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.cli.conftest import Run, fill

from holdfast.cli.prune import _combined, _reason
from holdfast.store import open_store
from holdfast.store.retention import Last, MaxBytes, Within


def left() -> list[str]:
    with open_store() as store:
        return [each.id for each in store.list()][::-1]


def test_a_dry_run_shows_the_plan_and_does_nothing(run: Run, ids: list[str]) -> None:
    outcome = run("prune", "--keep-last", "1", "--dry-run")
    lines = outcome.out.splitlines()
    assert lines[0].split()[0] == "PLAN"
    assert [line.split()[0] for line in lines[1:4]] == ["remove", "remove", "keep"]
    assert lines[-1].startswith("2 checkpoints would be removed, 1 kept; ")
    assert left() == ids


def test_prune_does_what_the_plan_said(run: Run, ids: list[str]) -> None:
    plan = run("prune", "--keep-last", "1", "--dry-run", "--json").json
    deed = run("prune", "--keep-last", "1", "--json").json
    assert [each["id"] for each in plan["removed"]] == [each["id"] for each in deed["removed"]]
    assert (plan["dry_run"], deed["dry_run"]) == (True, False)
    assert deed["kept"][0]["checkpoint"]["id"] == ids[2]
    assert deed["kept"][0]["why"]
    assert isinstance(deed["reclaimed_bytes"], int)
    assert left() == ids[2:]
    assert run("verify", "--deep").code == 0


def test_prune_says_what_it_freed(run: Run) -> None:
    with open_store() as store:
        for number in range(2):
            with store.draft("state/big") as draft:
                draft.put("bytes", bytes(range(256)) * 8000 + bytes([number]))
                draft.commit()
        fill(store, count=2)
    outcome = run("prune", "--keep-last", "1", "--subject", "state/big")
    assert outcome.out.splitlines()[-1].startswith("1 checkpoint removed, 1 kept; ")
    assert "reclaimed" in outcome.out
    assert len(left()) == 3


def test_what_is_pinned_stays(run: Run, ids: list[str]) -> None:
    run("pin", ids[0])
    run("prune", "--keep-last", "1")
    assert left() == [ids[0], ids[2]]


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ([], [0, 1, 2]),
        (["--keep-last", "2"], [1, 2]),
        (["--keep-within", "7d"], [0, 1, 2]),
        (["--keep-every", "52w"], [2]),
        (["--keep-hourly", "1"], [2]),
        (["--keep-daily", "1"], [2]),
        (["--keep-weekly", "1"], [2]),
        (["--keep-best", "1", "--by", "loss"], [1, 2]),
        (["--keep-best", "1", "--by", "loss", "--lowest"], [0, 2]),
        (["--keep-tagged"], [0, 1, 2]),
        (["--keep-reason", "step 0=1"], [0, 2]),
        (["--keep-reason", "step 0=1", "--keep-reason", "step 1=5"], [0, 1, 2]),
        (["--keep-last", "1", "--keep-reason", "step 0=1"], [0, 2]),
        (["--max-bytes", "10GB"], [0, 1, 2]),
        (["--max-bytes", "1"], [2]),
        (["--keep-within", "7d", "--max-bytes", "1"], [2]),
        (["--keep-last", "1", "--subject", "state/demo"], [2]),
    ],
)
def test_policies(run: Run, ids: list[str], options: list[str], kept: list[int]) -> None:
    for id_, loss in zip(ids, ("1", "5", "3"), strict=True):
        run("tag", id_, f"loss={loss}")
    document = run("prune", "--dry-run", "--json", *options).json
    assert {each["checkpoint"]["id"] for each in document["kept"]} == {ids[each] for each in kept}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--keep-last", "0"], "'0' is not a whole number, 1 or more"),
        (["--keep-last", "x"], "'x' is not a whole number, 1 or more"),
        (["--keep-within", "soon"], "'soon' is not a duration"),
        (["--max-bytes", "much"], "'much' is not a size"),
        (["--keep-best", "1"], "--keep-best needs --by TAG"),
        (["--by", "loss"], "--by and --lowest belong to --keep-best"),
        (["--keep-reason", "manual"], "'manual' is not REASON=N"),
        (["--keep-reason", "manual=x"], "'manual=x' is not REASON=N"),
    ],
)
def test_options_that_cannot_be(run: Run, ids: list[str], options: list[str], message: str) -> None:
    outcome = run("prune", *options)
    assert outcome.code == 2
    assert message in outcome.err
    assert left() == ids


def test_a_policy_that_keeps_nothing_is_refused(run: Run, ids: list[str]) -> None:
    outcome = run("prune", "--keep-best", "1", "--by", "loss")
    assert (outcome.code, left()) == (3, ids)
    assert "hint: `holdfast tag ID NAME=NUMBER` sets one" in outcome.err
    run("tag", ids[0], "score=0.5")
    run("tag", ids[0], "loss=low")
    outcome = run("prune", "--keep-best", "1", "--by", "loss")
    assert (outcome.code, left()) == (3, ids)
    assert "hint: tags with numbers: score" in outcome.err
    assert run("prune", "--subject", "state/nope").code == 3
    assert left() == ids


def test_a_budget_shows_what_it_counts(run: Run, ids: list[str]) -> None:
    with open_store() as store:
        first = store.resolve(ids[0])
    assert first.stored_bytes < first.size_bytes
    lines = run("prune", "--max-bytes", "1GB", "--dry-run").out.splitlines()
    assert "STORED" in lines[0]
    assert f"  {first.stored_bytes} B  " in lines[3]


def test_the_policy_that_is_built() -> None:
    last, week, budget = Last(1), Within(timedelta(days=7)), MaxBytes(10)
    assert _combined([], None) is None
    assert _combined([], budget) == budget
    assert _combined([last, week], budget) == (last | week) & budget
    assert getattr(_reason("a=b=3"), "reason", None) == "a=b"


def test_delete(run: Run, ids: list[str]) -> None:
    outcome = run("delete", ids[0], "state/demo", "--dry-run")
    assert len(outcome.out.splitlines()) == 3
    told = "2 checkpoints would be deleted; 1 more of state/demo would go with --all\n"
    assert outcome.err == told
    assert left() == ids
    document = run("delete", ids[0], ids[0], "state/demo", "--json").json
    assert [each["id"] for each in document["deleted"]] == [ids[0], ids[2]]
    assert document["dry_run"] is False
    assert left() == [ids[1]]
    assert run("log", "state/demo", "--json").json["head"] == ids[1]
    assert run("delete", ids[0]).code == 3
