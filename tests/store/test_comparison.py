"""Comparing: what changed from one checkpoint to another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.store.conftest import Noise

from holdfast.model.difference import ABSENT, compare_values
from holdfast.model.errors import Corrupt
from holdfast.store import Store, open_store

PAGE = 4096


@pytest.fixture(params=["plain", "encrypted"])
def kind(request: pytest.FixtureRequest) -> str:
    """What is said here holds whether the store is encrypted or not."""
    return str(request.param)


def changes(before: Any, after: Any) -> dict[str, tuple[Any, Any]]:
    return {one.path: (one.before, one.after) for one in compare_values("p", before, after)}


def test_values_are_compared_place_by_place() -> None:
    before = {"a": 1, "b": [1, 2, {"c": 3}], "gone": None, "same": {"x": [1]}}
    after = {"a": 2, "b": [1, 5, {"c": 4}, "new"], "same": {"x": [1]}, "added": []}
    assert changes(before, after) == {
        "a": (1, 2),
        "b[1]": (2, 5),
        "b[2].c": (3, 4),
        "b[3]": (ABSENT, "new"),
        "gone": (None, ABSENT),
        "added": (ABSENT, []),
    }
    assert changes(before, before) == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, 1.0), (True, 1), (0, False), ("1", 1), (b"a", "a"), ([], {}), (None, 0)],
)
def test_another_type_is_a_change(before: Any, after: Any) -> None:
    assert changes({"v": before}, {"v": after}) == {"v": (before, after)}


def test_a_nan_is_the_same_as_a_nan() -> None:
    nan = float("nan")
    assert changes([nan], [nan]) == {}
    assert list(changes([nan], [1.0])) == ["[0]"]


def test_parts_are_compared_by_their_maps(store: Store, noise) -> None:
    pages = bytearray(noise(300 * PAGE))
    with store.draft("session/x") as draft:
        draft.put("same", noise(1000))
        draft.put("gone", b"12345")
        draft.put("pages", pages, "pages")
        draft.put("files", noise(400_000, 2), "content")
        draft.put("value", {"a": 1}, "structure")
        first = draft.commit()
    for page in (3, 7, 200):
        pages[page * PAGE] ^= 1
    with store.draft("session/x") as draft:
        draft.put("same", noise(1000))
        draft.put("pages", pages + b"more", "pages")
        draft.put("files", noise(400_000, 2) + b"more", "content")
        draft.put("value", {"a": 2}, "structure")
        draft.put("new", b"123")
        second = draft.commit()
    diff = store.diff(first, second)
    parts = {one.name: one for one in diff.parts}
    assert {name: one.change for name, one in parts.items()} == {
        "files": "changed",
        "gone": "removed",
        "new": "added",
        "pages": "changed",
        "same": "same",
        "value": "changed",
    }
    assert parts["pages"].changed_bytes == 4 * PAGE  # three, and the one at the end
    assert 4 <= parts["files"].changed_bytes <= 64 * 1024 + 4
    assert (parts["new"].size_before, parts["new"].size_after) == (0, 3)
    assert [(one.path, one.before, one.after) for one in diff.values] == [("a", 1, 2)]
    assert not diff.same
    assert store.diff(first, first).same
    assert (diff.before.id, diff.after.id) == (first.id, second.id)


def test_a_part_of_another_kind_is_compared_as_a_whole(store: Store, save) -> None:
    a, b = save(b"some bytes" * 100), save({"some": "value"}, "structure")
    (part,) = store.diff(a, b).parts
    assert part.change == "changed"
    assert part.changed_bytes == part.size_after


def test_unchanged_values_are_not_read(place: Path, noise: Noise) -> None:
    """The value that stays is damaged on the disk by the time of the comparison."""
    with open_store(place) as store:
        with store.draft("state/x") as draft:
            draft.put("large", {"bytes": noise(3_000_000)}, "structure")
            draft.put("small", {"n": 1}, "structure")
            before = draft.commit()
        with store.draft("state/x") as draft:
            draft.keep("large")
            draft.put("small", {"n": 2}, "structure")
            after = draft.commit()
    for pack in place.glob("packs/*"):
        with pack.open("r+b") as file:
            file.seek(64)
            file.write(bytes(2_000_000))
    with open_store(place) as store:
        found = store.diff(before, after)
        assert [(one.path, one.after) for one in found.values] == [("n", 2)]
        with pytest.raises(Corrupt):
            store.value(before, "large")
