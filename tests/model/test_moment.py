"""Times: UTC, microseconds, and never going backwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import moment
from holdfast.model.errors import BadInput

TICK = timedelta(microseconds=1)
times = st.datetimes(timezones=st.just(UTC))


def test_now_is_in_utc() -> None:
    assert moment.now().utcoffset() == timedelta(0)


@given(times)
def test_text_round_trips(time: datetime) -> None:
    assert moment.from_text(moment.to_text(time)) == time


@given(times)
def test_microseconds_round_trip(time: datetime) -> None:
    assert moment.from_micros(moment.to_micros(time)) == time


def test_text_is_rfc_3339_with_microseconds() -> None:
    time = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert moment.to_text(time) == "2026-01-02T03:04:05.000006Z"
    there = time.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert moment.to_text(there) == "2026-01-02T03:04:05.000006Z"
    assert moment.to_text(datetime(999, 1, 1, tzinfo=UTC)) == "0999-01-01T00:00:00.000000Z"


def test_other_forms_are_read() -> None:
    expected = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    for text in ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05", "2026-01-02T05:04:05+02:00"):
        assert moment.from_text(text) == expected
    assert moment.from_text("2026-01-02") == datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "0001-01-01T00:00:00+23:59"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        moment.from_text(text)


@pytest.mark.parametrize("micros", [10**30, -(10**30)])
def test_a_number_beyond_the_calendar_is_refused(micros: int) -> None:
    with pytest.raises(BadInput):
        moment.from_micros(micros)


@given(times.filter(lambda t: t.year < 9999), times)
def test_a_time_is_always_after_the_last_one(last: datetime, clock: datetime) -> None:
    found = moment.after(last, clock)
    assert found > last
    assert found == (clock if clock > last else last + TICK)


def test_the_first_time_is_the_clocks() -> None:
    clock = datetime(2026, 1, 1, tzinfo=UTC)
    assert moment.after(None, clock) == clock
    assert moment.after(clock, clock) == clock + TICK


def test_after_the_last_moment_there_is_none() -> None:
    end = datetime.max.replace(tzinfo=UTC)
    assert moment.after(end - TICK, end) == end
    assert moment.after(end - TICK, end - TICK) == end
    with pytest.raises(BadInput, match="9999-12-31") as told:
        moment.after(end, end)
    assert told.value.hint
