"""What the log says since one of its entries."""

from __future__ import annotations

from holdfast.store import Store, open_store


def add(store: Store, subject: str = "state/a", content: bytes = b"x") -> str:
    with store.draft(subject) as draft:
        draft.put("content", content)
        return draft.commit().id


def test_nothing_happened() -> None:
    with open_store("memory://") as store:
        add(store)
        changes = store.changes(store.sequence)
        assert changes.complete
        assert changes.since == changes.sequence == store.sequence
        assert (changes.checkpoints, changes.removed, changes.moves) == ((), (), ())


def test_what_happened_is_told_once_and_in_order() -> None:
    with open_store("memory://") as store:
        old, gone = add(store), add(store, "state/b")
        before = store.sequence
        new = add(store)
        store.pin(old)
        store.delete(gone)
        store.restore(old)
        changes = store.changes(before)
        assert changes.sequence == store.sequence
        assert [each.id for each in changes.checkpoints] == [new, old]
        assert changes.checkpoints[1].pinned
        assert changes.removed == (gone,)
        assert [(str(each.subject), each.verb) for each in changes.moves if each.after] == [
            ("state/a", "checkpoint"),
            ("state/a", "restore"),
        ]
        assert store.changes(store.sequence - 1).checkpoints == ()


def test_what_came_and_went_is_only_said_to_be_gone() -> None:
    with open_store("memory://") as store:
        add(store)
        before = store.sequence
        brief = add(store)
        store.delete(brief)
        changes = store.changes(before)
        assert changes.checkpoints == ()
        assert changes.removed == (brief,)


def test_what_the_log_no_longer_tells_has_to_be_looked_up(tmp_path: object) -> None:
    from holdfast.store.retention import Last

    with open_store(str(tmp_path)) as store:
        for number in range(6):
            add(store, content=bytes([number]) * 5000)
        assert store.changes(0).complete
        store.prune(Last(1))
    with open_store(str(tmp_path)) as store:
        assert not store.changes(store.sequence + 1).complete
        told = store.changes(0)
        assert not told.complete or len(told.removed) == 5
