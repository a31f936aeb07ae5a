"""Ports, sizes and durations as people type them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.quantities import (
    brief,
    duration_text,
    parse_duration,
    parse_port,
    parse_size,
    size_text,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("512b", 512),
        ("10GB", 10 * 10**9),
        ("10 gb", 10 * 10**9),
        ("4GiB", 4 * 2**30),
        ("1.5k", 1500),
        ("2M", 2 * 10**6),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1XB", "10 G B", "1iB", "ten"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


def test_ports() -> None:
    assert [parse_port(text) for text in ("0", "8787", "65535")] == [0, 8787, 65535]


@pytest.mark.parametrize(
    "text", ["", "abc", "-1", "65536", "99999", "8787.5", "\u0663", "9" * 5000]
)
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(ValueError, match="is not a port, from 0 to 65535"):
        parse_port(text)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("1h30m", timedelta(minutes=90)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("1D 2H", timedelta(hours=26)),
    ],
)
def test_durations(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "7", "d", "7y", "-1d", "0s", "1.5h", "9" * 30 + "w"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=repr(text)):
        parse_duration(text)


@given(st.integers(0, 10**15), st.sampled_from([1, 1000, 1024, 10**6, 1 << 20, 1 << 30]))
def test_what_is_shown_can_be_typed(number: int, scale: int) -> None:
    shown = size_text(number * scale)
    assert shown is None or parse_size(shown) == number * scale
    seconds = number % 10**9
    told = duration_text(float(seconds))
    assert (told is None) == (seconds < 60)
    assert told is None or parse_duration(told) == timedelta(seconds=seconds)


def test_round_numbers_are_short() -> None:
    assert [size_text(each) for each in (0, 1, 10 << 30, 2 << 30, 10**6, 1500)] == [
        None, None, "10GiB", "2GiB", "1MB", None,
    ]  # fmt: skip
    assert [duration_text(each) for each in (30.0, 90.5, 300.0, 3600.0, 5400.0)] == [
        None, None, "5m", "1h", "1h30m",
    ]  # fmt: skip


@given(st.text(max_size=20) | st.from_regex(r"[0-9]{1,4} ?[smhdwkMGi]{0,2}B?", fullmatch=True))
def test_anything_is_understood_or_refused_in_words(text: str) -> None:
    for parse, least in ((parse_size, 0), (parse_duration, timedelta(seconds=1))):
        refused = ""
        try:
            assert parse(text) >= least
        except ValueError as error:
            refused = str(error)
        assert not refused or brief(text) in refused
