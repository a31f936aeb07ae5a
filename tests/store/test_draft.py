"""Drafts: nothing exists until the commit, and then everything does."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import BadInput, NotFound, UsageError
from holdfast.store import Store, open_store


@pytest.fixture(params=["plain", "encrypted"])
def kind(request: pytest.FixtureRequest) -> str:
    """What is said here holds whether the store is encrypted or not."""
    return str(request.param)


def test_a_checkpoint_says_what_it_is(store: Store) -> None:
    with store.draft("session/x", reason="before", stage="two", tags={"score": "1"}) as draft:
        draft.put("a", b"12345")
        draft.put("b/c", {"k": 1}, "structure")
        first = draft.commit()
    with store.draft("session/x") as draft:
        second = draft.commit()
    assert (first.reason, first.stage, dict(first.tags)) == ("before", "two", {"score": "1"})
    assert (first.parents, second.parents) == ((), (first.id,))
    assert (first.part_count, second.part_count) == (2, 0)
    assert (second.reason, second.stage) == ("manual", None)
    assert first.size_bytes >= 5
    assert [part.name for part in store.show(first).parts] == ["a", "b/c"]
    assert store.resolve(first.id) == first


def test_leaving_without_a_commit_changes_nothing(store: Store, place: Path, noise, look) -> None:
    before = look(place)
    for size in (100, 3_000_000):
        with store.draft("session/x") as draft:
            draft.put("a", noise(size))
        with suppress(RuntimeError), store.draft("session/x") as draft:
            draft.put("a", noise(size))
            raise RuntimeError
    assert store.list() == []
    assert look(place) == before


def test_a_finished_draft_cannot_be_used_again(store: Store) -> None:
    draft = store.draft("session/x")
    draft.commit()
    for use in (draft.commit, lambda: draft.put("a", b""), lambda: draft.keep("a")):
        with pytest.raises(UsageError, match="finished") as caught:
            use()
        assert caught.value.hint
    draft.discard()
    given_up = store.draft("session/x")
    given_up.discard()
    with pytest.raises(UsageError, match="finished"):
        given_up.commit()
    assert len(store.list()) == 1


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "../a", "a/../b", ".", "a\0b", "x" * 1025, "\ud800"]
)
def test_bad_part_names_are_refused(store: Store, name: str) -> None:
    with store.draft("session/x") as draft, pytest.raises(BadInput) as caught:
        draft.put(name, b"")
    assert caught.value.hint


def test_a_part_cannot_be_given_twice(store: Store, save) -> None:
    save(b"first", part="b")
    with store.draft("state/x") as draft:
        draft.put("a", b"1")
        with pytest.raises(BadInput, match="already"):
            draft.put("a", b"2")
        draft.keep("b")
        with pytest.raises(BadInput, match="already"):
            draft.keep("b")
        with pytest.raises(BadInput, match="already"):
            draft.put("b", b"2")
        checkpoint = draft.commit()
    assert store.read(checkpoint, "a") == b"1"


@pytest.mark.parametrize("skew", [-1, 4096, 10**9])
def test_a_skew_lies_within_a_page(store: Store, skew: int) -> None:
    with store.draft("session/x") as draft, pytest.raises(BadInput, match="skew"):
        draft.put("a", b"", "pages", skew=skew)


def test_an_unknown_split_is_a_usage_error(store: Store) -> None:
    with store.draft("session/x") as draft:
        with pytest.raises(UsageError, match="split"):
            draft.put("a", b"", "halves")  # type: ignore[arg-type]
        draft.put("a", b"", "whole")
        assert draft.commit().part_count == 1


@pytest.mark.parametrize("subject", ["x", "seance/x", "session/", "session/a b", "session/a~1"])
def test_bad_subjects_are_refused(store: Store, subject: str) -> None:
    with pytest.raises(BadInput):
        store.draft(subject)


@pytest.mark.parametrize(
    "about",
    [
        {"tags": {"score": 0.5}},
        {"tags": {1: "a"}},
        {"tags": {"a": None}},
        {"reason": None},
        {"reason": 5},
        {"reason": "\ud800"},
        {"stage": 3},
        {"stage": b"three"},
        {"tags": {"\ud800": ""}},
    ],
    ids=str,
)
def test_what_cannot_be_recorded_is_refused_before_anything_is_stored(
    store: Store, about: dict[str, Any]
) -> None:
    with pytest.raises(BadInput):
        store.draft("session/x", **about)
    assert store.list() == []
    assert store.verify().ok


def test_a_description_has_a_limit(store: Store, save) -> None:
    long = save(reason="r" * 1_000_000, tags={"t" * 1000: "v" * 100_000})
    with pytest.raises(BadInput, match="recorded"):
        save(reason="r" * 70_000_000)
    assert store.verify(deep=True).ok
    with open_store(store.url) as again:
        assert again.list() == [long]


def test_parts_are_kept_without_their_bytes(store: Store, save, noise) -> None:
    values = {
        "whole": noise(50_000, 1),
        "content": noise(300_000, 2),
        "pages": noise(600_000, 3),
        "segment": noise(600_000, 4),
    }
    with store.draft("session/x") as draft:
        for split, data in values.items():
            draft.put(split, data, split)  # type: ignore[arg-type]
        draft.put("structure", {"a": ["x" * 10_000]}, "structure")
        first = draft.commit()
    with store.draft("session/x") as draft:
        for name in (*values, "structure"):
            draft.keep(name)
        second = draft.commit()
    assert second.stored_bytes == 0
    assert second.size_bytes == first.size_bytes
    store.delete(first)
    store.prune()
    for split, data in values.items():
        assert store.read(second, split) == data
    assert store.value(second, "structure") == {"a": ["x" * 10_000]}


def test_what_is_not_there_cannot_be_kept(store: Store, save) -> None:
    with store.draft("session/new") as draft, pytest.raises(NotFound, match="no parent"):
        draft.keep("a")
    save(b"1", part="a")
    with store.draft("state/x") as draft, pytest.raises(NotFound) as caught:
        draft.keep("b")
    assert "a" in (caught.value.hint or "")


def test_parts_are_found_again_when_their_list_is_long(store: Store, place: Path, noise) -> None:
    # The list alone pushes the draft over the limit of what goes into the log.
    names = [noise(400, i).hex() for i in range(1000)]
    contents = {name: noise(700, i + 5000) for i, name in enumerate(names)}
    with store.draft("session/x") as draft:
        for name, data in contents.items():
            draft.put(name, data)
        first = draft.commit()
    with store.draft("session/x") as draft:
        for name in names[:20]:
            draft.keep(name)
        second = draft.commit()
    store.delete(first)
    store.prune()  # moves what the second needs out of a pack that is mostly dead
    with open_store(place) as again:
        for name in names[:20]:
            assert again.read(second, name) == contents[name]
        assert again.verify(deep=True).ok


def test_too_many_parts_are_refused_and_nothing_is_lost(store: Store, save) -> None:
    before = save()
    with store.draft("session/x") as draft:
        for i in range(17_000):
            draft.put(f"{i:08}" * 125, b"")
        with pytest.raises(BadInput, match="parts"):
            draft.commit()
    assert store.list() == [before]


@pytest.mark.parametrize("size", [1_000_000, 1_048_000, 1_048_576, 1_050_000, 1_100_000])
def test_around_the_limit_of_a_small_commit(place: Path, size: int, save, noise) -> None:
    data = noise(size)
    with open_store(place) as store, store.draft("session/x") as draft:
        for at in range(0, size, 50_000):
            draft.put(f"part {at}", data[at : at + 50_000])
        checkpoint = draft.commit()
    with open_store(place) as store:
        parts = [store.read(checkpoint, f"part {at}") for at in range(0, size, 50_000)]
        assert b"".join(parts) == data
        assert store.verify(deep=True).ok


def test_a_parent_may_be_chosen(store: Store, save) -> None:
    first, second = save(b"1"), save(b"2")
    side = save(b"3", parent=first)
    alone = save(b"4", parent=None)
    assert side.parents == (first.id,)
    assert alone.parents == ()
    assert store.head("state/x") == alone
    assert save(b"5", parent=second.short).parents == (second.id,)
    with pytest.raises(NotFound):
        store.draft("state/x", parent="nothing")
