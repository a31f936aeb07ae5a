"""References: every way to mean a checkpoint."""

from __future__ import annotations

import pytest

from holdfast.model.checkpoint import SHORT
from holdfast.model.errors import BadInput, NotFound
from holdfast.store import Store


def test_every_way_to_mean_a_checkpoint(store: Store, save) -> None:
    first, second, third = (save(bytes([i]), reason=str(i)) for i in range(3))
    store.tag(first, "golden")
    for reference, meant in [
        (third, third),
        (first.id, first),
        (first.id.upper(), first),
        (second.short, second),
        (second.digest, second),
        (second.digest[:4], second),
        (second.short.upper(), second),
        ("state/x", third),
        ("state/x~", second),
        ("state/x~1", second),
        ("state/x~2", first),
        ("state/x~~", first),
        ("state/x~1~1", first),
        ("state/x~0", third),
        (f"{third.short}~2", first),
        (f"{third.id}~", second),
        ("golden", first),
        ("golden~0", first),
    ]:
        assert store.resolve(reference).id == meant.id, reference


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("", "nothing is called"),
        ("nothing", "nothing is called"),
        ("~2", "nothing is called"),
        ("ffffffffffff", "no checkpoint begins with"),
        ("abc", "nothing is called"),
        ("state/none", "no subject"),
        ("state/x~3", "further"),
        ("state/x~999999999", "further"),
        ("019a0000-0000-7000-8000-000000000000", "no checkpoint 019a"),
    ],
)
def test_what_means_nothing_is_said_with_a_hint(store: Store, save, reference, says) -> None:
    for i in range(3):
        save(bytes([i]))
    with pytest.raises(NotFound, match=says) as caught:
        store.resolve(reference)
    assert caught.value.hint


@pytest.mark.parametrize("reference", ["929", "a", "abc~1"])
def test_a_short_id_that_is_too_short_is_said(store: Store, save, reference: str) -> None:
    save()
    with pytest.raises(NotFound) as caught:
        store.resolve(reference)
    assert "at least 4 digits" in (caught.value.hint or "")


def test_a_fork_of_another_kind_is_told_what_to_write(store: Store, save) -> None:
    made = save()
    with pytest.raises(BadInput) as caught:
        store.fork(made, "session/foo")
    assert caught.value.hint == "a fork is of the same kind: call it state/foo"


@pytest.mark.parametrize("reference", ["seance/x", "state/a b", "state/x~" + "9" * 5000])
def test_what_is_no_subject_is_bad_input(store: Store, save, reference: str) -> None:
    save()
    with pytest.raises(BadInput):
        store.resolve(reference)


def test_an_ambiguous_short_id_names_the_candidates(store: Store) -> None:
    seen: dict[str, str] = {}
    while True:  # four hex digits collide after a few hundred
        with store.draft("state/x", parent=None) as draft:
            digest = draft.commit().digest
        if digest[:4] in seen:
            break
        seen[digest[:4]] = digest
    both = (seen[digest[:4]], digest)
    with pytest.raises(BadInput, match="could be any of 2") as caught:
        store.resolve(digest[:4])
    assert all(one[: SHORT + 4] in str(caught.value) for one in both)
    assert store.resolve(digest[: SHORT + 4]).digest == digest


def test_a_tag_means_its_newest_holder(store: Store, save) -> None:
    first, second = save(b"1"), save(b"2", tags={"best": "0.9"})
    assert store.resolve("best") == second
    store.tag(first, "best", "0.95")
    assert store.resolve("best").id == second.id
    store.untag(second, "best")
    found = store.resolve("best")
    assert (found.id, dict(found.tags)) == (first.id, {"best": "0.95"})
    store.untag(first, "best")
    with pytest.raises(NotFound):
        store.resolve("best")


@pytest.mark.parametrize("name", ["", "a/b", "a~1", "a\nb", "019a0000-0000-7000-8000-000000000000"])
def test_bad_tags_are_refused(store: Store, save, name: str) -> None:
    with pytest.raises(BadInput, match="tag"):
        store.tag(save(), name)


def test_a_tag_has_a_text_as_its_value(store: Store, save) -> None:
    checkpoint = save()
    with pytest.raises(BadInput):
        store.tag(checkpoint, "score", 0.5)  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        store.tag(checkpoint, "score", "\ud800")
    assert store.verify().ok
    assert dict(store.resolve(checkpoint).tags) == {}


def test_an_ancestor_that_was_pruned_is_said(store: Store, save) -> None:
    save(b"1")
    second = save(b"2")
    save(b"3")
    store.delete(second)
    with pytest.raises(NotFound, match="no checkpoint") as caught:
        store.resolve("state/x~2")
    assert "pruned" in (caught.value.hint or "")
