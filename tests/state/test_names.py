"""Names of sessions and their files."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import BadInput
from holdfast.state import names

TIMES = st.datetimes(timezones=st.just(UTC))


@given(TIMES)
def test_a_stamp_is_a_time(time: datetime) -> None:
    assert names.time_of(names.stamp(time)) == time


@given(TIMES, TIMES)
def test_stamps_sort_as_times_do(one: datetime, other: datetime) -> None:
    assert (names.stamp(one) < names.stamp(other)) == (one < other)


@given(st.text(max_size=60), TIMES)
def test_no_allowed_id_leads_out_of_the_directory_or_to_another_session(
    text: str, time: datetime
) -> None:
    try:
        session_id = names.check_session_id(text)
    except BadInput:
        return
    stamp = names.stamp(time)
    checkpoint, state = names.checkpoint_file(session_id, stamp), names.state_file(session_id)
    for name in (checkpoint, state, names.unfinished(checkpoint), names.lock_file(session_id)):
        assert "/" not in name
        assert len(name.encode()) <= 255
    assert names.stamp_in(checkpoint, session_id) == stamp
    assert names.stamp_in(state, session_id) is None
    assert names.stamp_in(checkpoint, session_id + "x") is None
    assert names.is_unfinished(names.unfinished(checkpoint), session_id)
    assert not names.is_unfinished(checkpoint, session_id)
    assert names.session_ids([checkpoint, state, names.lock_file(session_id)]) == [session_id]


def test_the_longest_id_fits() -> None:
    session_id = names.check_session_id("x" * names.MAX_SESSION_ID)
    file = names.checkpoint_file(session_id, "20260101_000000_000000")
    assert len(names.unfinished(file)) <= 255


@pytest.mark.parametrize(
    "text",
    ["20261301_000000_000000", "20260101_000000_00000", "2026", "", "٢٠٢٦٠١٠١_000000_000000"],
)
def test_what_is_no_stamp(text: str) -> None:
    assert names.time_of(text) is None


def test_sessions_of_a_directory() -> None:
    files = ["b.json", "a_checkpoint_20260101_000000_000000.json", ".a.lock", "notes.txt"]
    assert names.session_ids(files) == ["a", "b"]
