"""Subjects: what may name a thing, and what may not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import BadInput
from holdfast.model.subject import KINDS, MAX_NAME, Subject

segments = st.text(
    st.characters(exclude_characters="/~@^:\\*?[]\x7f", exclude_categories=["C", "Z"]), min_size=1
).filter(lambda text: text not in (".", ".."))
names = st.lists(segments, min_size=1, max_size=4).map("/".join)


@given(st.sampled_from(KINDS), names.filter(lambda name: len(name.encode()) <= MAX_NAME))
def test_what_is_written_reads_back(kind: str, name: str) -> None:
    subject = Subject.parse(f"{kind}/{name}")
    assert (subject.kind, subject.name) == (kind, name)
    assert Subject.parse(str(subject)) == subject


@pytest.mark.parametrize(
    "text",
    [
        "",
        "analysis",
        "session/",
        "/x",
        "seance/x",
        "session/a b",
        "session/a\tb",
        "session/a\nb",
        "session/a\0b",
        "session/a~1",
        "session/a@b",
        "session/a*",
        "session/[a]",
        "session/..",
        "session/a/../b",
        "session/a//b",
        "session/./a",
        "session/a/",
        "session/" + "x" * (MAX_NAME + 1),
        "session/" + "é" * 128,
        "session/\ud800",
    ],
)
def test_what_cannot_be_a_subject_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        Subject.parse(text)
    assert caught.value.hint
    str(caught.value).encode("utf-8", "backslashreplace")


def test_names_at_the_limit_are_allowed() -> None:
    assert Subject.parse("session/" + "x" * MAX_NAME).name == "x" * MAX_NAME
    assert Subject.parse("container/default/tc").name == "default/tc"


def test_subjects_are_values() -> None:
    assert len({Subject("session", "a"), Subject("session", "a"), Subject("state", "a")}) == 2
    assert sorted([Subject("state", "a"), Subject("session", "b")])[0].kind == "session"
