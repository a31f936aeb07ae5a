"""Somebody who can write to a store, and has no key that is known here: what they say of our
subjects is not believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Denied, Owned
from holdfast.store import Store, open_store
from holdfast.store.keys import Key, Keyring
from holdfast.store.log.entries import Disown
from holdfast.store.retention import Last

Open = Callable[[Key | None], Store]


@pytest.fixture(params=["directory", "bucket"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens one store, with this machine's key or with another one."""
    place = request.getfixturevalue("on_s3") if request.param == "bucket" else tmp_path / "store"

    def open_with(key: Key | None = None) -> Store:
        return open_store(place, keyring=Keyring(key) if key else None)

    return open_with


@pytest.fixture
def attacker(opened: Open, line: list[Checkpoint]) -> Store:
    """Opens the store after we have written to it."""
    return opened(Key.generate())


@pytest.fixture
def line(opened: Open) -> list[Checkpoint]:
    """Three checkpoints of ours, of a subject and of another one."""
    made = []
    with opened(None) as store:
        for i in range(3):
            for subject in ("session/x", "state/y"):
                with store.draft(subject) as draft:
                    draft.put("part", b"%d" % i)
                    made.append(draft.commit())
    return made[::2]


def test_heads_are_not_moved(opened: Open, line: list[Checkpoint], attacker: Store) -> None:
    attacker.restore(line[0], trust=True)
    attacker.move_heads(line[0], trust=True)
    attacker.undo("session/x")
    with opened(None) as store:
        assert store.head("session/x") == line[-1]
        assert [move.verb for move in store.history("session/x")] == ["checkpoint"] * 3
        notes = store.verify().notes
        assert sum("is ignored" in note for note in notes) == 3
        assert store.verify().ok


def test_several_heads_move_or_none(opened: Open, line: list[Checkpoint], attacker: Store) -> None:
    """Also the head of the attacker's own subject stays, where one of ours was to move with it."""
    with attacker.draft("state/theirs") as draft:
        first = draft.commit()
    with attacker.draft("state/theirs") as draft:
        second = draft.commit()
    attacker.move_heads(first, line[0], trust=True)
    with opened(None) as store:
        assert store.head("session/x") == line[-1]
        theirs = store.head("state/theirs")
        assert theirs is not None
        assert theirs.id == second.id


def test_labels_are_not_changed(opened: Open, line: list[Checkpoint], attacker: Store) -> None:
    with opened(None) as store:
        store.pin(line[0])
        store.tag(line[1], "golden")
    attacker.tag(line[0], "golden")
    attacker.untag(line[1], "golden")
    attacker.unpin(line[0])
    attacker.pin(line[1])
    with opened(None) as store:
        assert store.resolve("golden").id == line[1].id
        assert store.resolve(line[0]).pinned
        assert not store.resolve(line[1]).pinned
        report = store.prune(Last(1))
        assert line[0].id not in {one.id for one in report.removed}


def test_a_tag_of_ours_keeps_its_meaning(
    opened: Open, line: list[Checkpoint], attacker: Store
) -> None:
    with opened(None) as store:
        store.tag(line[1], "golden")
    for subject in ("session/x", "state/theirs"):
        with attacker.draft(subject, tags={"golden": "", "theirs": ""}) as draft:
            made = draft.commit()
    with opened(None) as store:
        assert store.resolve("golden").id == line[1].id
        assert store.resolve("theirs").id == made.id


def test_leases_are_not_taken_or_ended(
    opened: Open, line: list[Checkpoint], attacker: Store
) -> None:
    theirs = attacker.lease("session/x")
    with opened(None) as store:
        assert store.owner("session/x") is None
        with store.lease("session/x") as ours:
            end = Disown(subject="session/x", token=ours.token, time=1)
            attacker._ledger.append(lambda now: (end, b""))
            owner = store.owner("session/x")
            assert owner is not None
            assert owner.token == ours.token
            with store.draft("session/x", lease=ours) as draft:
                draft.put("part", b"still ours")
                made = draft.commit()
        assert store.head("session/x") == made
    theirs.release()


def test_folding_keeps_what_others_believe(
    opened: Open, line: list[Checkpoint], attacker: Store
) -> None:
    """Somebody else may know the key: what we do not believe stays in the log."""
    attacker.restore(line[0], trust=True)
    with opened(None) as store:
        for i in range(10):
            with store.draft("state/large") as draft:
                draft.put("part", bytes(range(256)) * 3000 + bytes([i]))
                draft.commit()
        store.prune(Last(1), "state/large")
        assert store.head("session/x") == line[-1]
    with opened(None) as again:
        assert again.head("session/x") == line[-1]
    attacker.refresh()
    theirs = attacker.head("session/x")
    assert theirs is not None
    assert theirs.id == line[0].id


def test_a_known_key_is_believed(opened: Open, line: list[Checkpoint]) -> None:
    friend = Key.generate()
    with opened(friend) as store:
        store.restore(line[0], trust=True)
    with opened(None) as store:
        mine = store._ledger.keyring.signing
        assert mine is not None
    place = store.url
    with open_store(place, keyring=Keyring(mine, [friend])) as both:
        head = both.head("session/x")
        assert head is not None
        assert head.id == line[0].id


def test_subjects_of_others_are_theirs(
    opened: Open, line: list[Checkpoint], attacker: Store
) -> None:
    """They are listed, moved and owned by those who made them, and restored with trust alone."""
    with attacker.draft("state/theirs") as draft:
        first = draft.commit()
    with attacker.draft("state/theirs") as draft:
        draft.commit()
    attacker.restore(first)
    attacker.tag(first, "theirs")
    with attacker.lease("state/theirs", owner="them"), opened(None) as store:
        head = store.head("state/theirs")
        assert head is not None
        assert (head.id, head.foreign, "theirs" in head.tags) == (first.id, True, True)
        with pytest.raises(Denied):
            store.restore(first)
        with pytest.raises(Owned):
            store.restore(first, trust=True)
