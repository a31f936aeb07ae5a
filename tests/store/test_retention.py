"""Retention: which checkpoints to keep, on checkpoints made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput
from holdfast.model.subject import Subject
from holdfast.store import retention
from holdfast.store.retention import (
    Best,
    Daily,
    Every,
    ForReason,
    Hourly,
    Last,
    MaxBytes,
    Policy,
    Tagged,
    Weekly,
    Within,
)

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)  # a Wednesday


def made(
    number: int,
    ago: timedelta = timedelta(0),
    *,
    pinned: bool = False,
    reason: str = "manual",
    stored: int = 10,
    **tags: str,
) -> Checkpoint:
    return Checkpoint(
        id=str(number),
        subject=Subject("state", "x"),
        parents=(),
        reason=reason,
        stage=None,
        time=NOW - ago,
        digest=f"{number:064x}",
        size_bytes=100,
        stored_bytes=stored,
        part_count=1,
        sequence=number,
        tags=tags,
        pinned=pinned,
    )


def kept(checkpoints: list[Checkpoint], policy: Policy, head: str | None = None) -> list[int]:
    decision = retention.decide(checkpoints, policy, head, NOW)
    assert {one.id for one, _ in decision.kept} | {one.id for one in decision.removed} == {
        one.id for one in checkpoints
    }
    assert all(why for _, why in decision.kept)
    return [int(one.id) for one, _ in decision.kept]


HOURS = [made(i, timedelta(hours=100 - i)) for i in range(100)]  # one an hour, the last 1 h ago


def test_the_last_n() -> None:
    assert kept(HOURS, Last(3)) == [99, 98, 97]
    assert kept(HOURS[:2], Last(3)) == [1, 0]


def test_imported_work_is_ordered_by_its_time() -> None:
    """Fifty old checkpoints come in behind ten of today: the ten are still the newest."""
    own = [made(i, timedelta(minutes=10 - i)) for i in range(10)]
    imported = [made(100 + i, timedelta(days=90 - i)) for i in range(50)]
    assert kept([*own, *imported], Last(10)) == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert kept([*own, *imported], Last(11)) == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 149]
    assert kept([*imported, *own], Last(1), head="120") == [9, 120]


def test_nothing_imported_comes_from_the_future() -> None:
    own = [made(i, timedelta(days=5 - i)) for i in range(3)]
    ahead = made(50, timedelta(days=-100))
    times = retention.believable_times([(own[0], False), (ahead, True), (own[1], False)], NOW)
    assert times == {"0": own[0].time, "50": own[1].time, "1": own[1].time}
    times = retention.believable_times([(own[0], False), (ahead, True)], NOW)
    assert times == {"0": own[0].time, "50": NOW}


def test_equal_times_keep_the_log_order() -> None:
    assert kept([made(i) for i in range(5)], Last(2)) == [4, 3]


@pytest.mark.parametrize("policy", [Daily(3), Hourly(3), Weekly(3), Every(3600)])
def test_no_slot_is_counted_twice(policy: Policy) -> None:
    """Days of own work with days of imported work in between them."""
    own = [made(i, timedelta(days=7 * (5 - i), minutes=-20)) for i in range(5)]
    imported = [made(100 + i, timedelta(days=7 * (5 - i), minutes=-10)) for i in range(5)]
    own, imported = imported, own  # the later ones of each day are those with high numbers
    mixed = [each for pair in zip(own, imported, strict=True) for each in pair]
    for order in (mixed, [*own, *imported], [*imported, *own], mixed[::-1]):
        found = kept(order, policy)
        assert found[:3] == [4, 3, 2]
        assert not {each for each in found if each >= 100}


def test_within_a_time() -> None:
    assert kept(HOURS, Within(timedelta(hours=5))) == [99, 98, 97, 96, 95]


def test_every_so_many_seconds() -> None:
    minutes = [made(i, timedelta(minutes=60 - i)) for i in range(60)]
    assert kept(minutes, Every(1200)) == [59, 39, 19]
    assert len(kept(minutes, Every(0.5))) == 60


def test_hourly_daily_weekly() -> None:
    quarters = [made(i, timedelta(minutes=15 * (40 - i))) for i in range(40)]
    assert kept(quarters, Hourly(3)) == [39, 35, 31]
    # The newest of each day: NOW is 12:00, so hour 11 today and hour 23 on the days before.
    assert kept(HOURS, Daily(3)) == [99, 87, 63]
    days = [made(i, timedelta(days=60 - i)) for i in range(60)]
    assert kept(days, Weekly(3)) == [59, 57, 50]  # Tuesday, then two Sundays
    assert kept(days[:58], Weekly(2)) == [57, 50]


def test_hours_without_a_checkpoint_do_not_count() -> None:
    far = [made(0, timedelta(days=300)), made(1, timedelta(days=100)), made(2)]
    assert kept(far, Daily(3)) == [2, 1, 0]
    assert kept(far, Hourly(2)) == [2, 1]


def test_the_best_by_a_tag() -> None:
    scores = ["0.5", "0.9", "nonsense", "0.7", "nan", "1e3", "-inf"]
    all_ = [made(i, score=score) for i, score in enumerate(scores)] + [made(7)]
    assert kept(all_, Best(2, "score")) == [7, 5, 1]
    assert kept(all_, Best(2, "score", lowest=True)) == [7, 6, 0]
    assert kept(all_, Best(9, "score")) == [7, 6, 5, 3, 1, 0]
    assert kept(all_, Best(1, "loss")) == [7]


def test_everything_tagged() -> None:
    assert kept([made(0, golden=""), made(1), made(2, other="x"), made(3)], Tagged()) == [3, 2, 0]


def test_the_last_n_for_a_reason() -> None:
    all_ = [made(i, reason="deploy" if i % 3 == 0 else "auto") for i in range(10)]
    assert kept(all_, ForReason("deploy", 2)) == [9, 6]
    assert kept(all_, ForReason("never", 2)) == [9]


def test_a_budget_of_bytes() -> None:
    all_ = [made(i, stored=stored) for i, stored in enumerate([5, 5, 100, 20, 10, 30])]
    assert kept(all_, MaxBytes(60)) == [5, 4, 3]
    assert kept(all_, MaxBytes(59)) == [5, 4]
    assert kept(all_, MaxBytes(1)) == [5]  # the newest, whatever it costs
    assert kept(all_, MaxBytes(10**9)) == [5, 4, 3, 2, 1, 0]


def test_policies_combine() -> None:
    assert kept(HOURS, Last(2) | Daily(2)) == [99, 98, 87]
    assert kept(HOURS, Last(20) & Daily(3)) == [99, 87]
    assert kept(HOURS, (Last(20) & Daily(3)) | Last(2)) == [99, 98, 87]
    assert kept(HOURS, Within(timedelta(hours=3)) | Daily(2) & Last(1)) == [99, 98, 97]


def test_reasons_are_said() -> None:
    decision = retention.decide(HOURS, Last(1) | Daily(2), "50", NOW)
    why = {one.id: text for one, text in decision.kept}
    assert why == {"99": "newest, one of the last 1, daily", "87": "daily", "50": "head"}


def test_newest_head_and_pinned_are_always_kept() -> None:
    all_ = [made(i, pinned=i == 2) for i in range(10)]
    assert kept(all_, ForReason("never", 1), head="5") == [9, 5, 2]
    assert kept([made(0)], ForReason("never", 1)) == [0]
    assert kept([], Last(1)) == []


policies = st.recursive(
    st.sampled_from(
        [
            *(Last(1), Last(7), Within(timedelta(hours=9)), Every(7200), Hourly(2), Daily(2)),
            *(Weekly(1), Best(1, "score"), Tagged(), ForReason("manual", 3), MaxBytes(55)),
        ]
    ),
    lambda inner: (
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1])
        | st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1])
    ),
    max_leaves=4,
)


@given(policies, policies, st.integers(0, 99))
def test_either_keeps_the_union_and_both_the_intersection(a: Policy, b: Policy, head: int) -> None:
    always = {99, head}
    sets = [set(kept(HOURS, policy, str(head))) for policy in (a, b, a | b, a & b)]
    assert sets[2] == sets[0] | sets[1]
    assert sets[3] == sets[0] & sets[1]
    assert always <= sets[3]


@given(policies, st.permutations(range(100)))
def test_the_order_in_which_they_are_given_does_not_matter(
    policy: Policy, order: list[int]
) -> None:
    assert kept([HOURS[i] for i in order], policy) == kept(HOURS, policy)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Last(0),
        lambda: Last(-1),
        lambda: Within(timedelta(0)),
        lambda: Every(0),
        lambda: Hourly(0),
        lambda: Daily(-2),
        lambda: Weekly(0),
        lambda: Best(0, "score"),
        lambda: ForReason("x", 0),
        lambda: MaxBytes(0),
    ],
    ids=range(10),
)
def test_a_policy_that_keeps_nothing_is_refused(make) -> None:
    with pytest.raises(BadInput, match="more than 0"):
        make()


def test_the_default_keeps_fifty_and_everything_tagged() -> None:
    all_ = [made(i, **({"golden": ""} if i == 3 else {})) for i in range(80)]
    assert kept(all_, retention.DEFAULT) == [*range(79, 29, -1), 3]
