"""Values as words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.view.words import age, count, printable, size

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1_250_000, "1.2 MB"),
        (999_999, "1.0 MB"),
        (12_345_678, "12 MB"),
        (5 * 10**18, "5000 PB"),
    ],
)
def test_sizes(number: int, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (timedelta(seconds=0), "0 s ago"),
        (timedelta(seconds=61), "1 min ago"),
        (timedelta(hours=5), "5 h ago"),
        (timedelta(days=30), "30 d ago"),
        (timedelta(days=32), "2025-12-01 03:04"),
        (timedelta(hours=-1), "2026-01-02 04:04"),
    ],
)
def test_ages(ago: timedelta, text: str) -> None:
    assert age(NOW - ago, NOW) == text


def test_counts() -> None:
    assert count(1, "part") == "1 part"
    assert count(0, "part") == "0 parts"


@given(st.text(st.characters()))
def test_nothing_printable_acts_on_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in shown)
    assert "\u202e" not in shown
    shown.encode()


def test_ordinary_text_stays() -> None:
    assert printable("naïve [bold] 日本 🎉") == "naïve [bold] 日本 🎉"
