"""The store's face: lists, heads and their history, time, threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.model import moment
from holdfast.model.errors import BadInput, Conflict, NotFound
from holdfast.store import Store, open_store
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.backends.local.holds import living
from holdfast.store.keys import load_keyring
from holdfast.store.log.entries import Move, encode_entry
from holdfast.store.log.frames import Signed, signed_message


def test_a_list_is_newest_first_and_can_be_narrowed(store: Store, save) -> None:
    made = [
        save(bytes([i]), subject=f"{kind}/x") for i, kind in enumerate(("state", "session") * 3)
    ]
    assert store.list() == made[::-1]
    assert [c.id for c in store.list("state/x")] == [c.id for c in made[::2]][::-1]
    assert [c.id for c in store.list(kind="session")] == [c.id for c in made[1::2]][::-1]
    assert store.list(limit=2) == made[:-3:-1]
    assert store.list("state/none") == []
    with pytest.raises(BadInput):
        store.list("nonsense")


def test_listing_never_reads_content(store: Store, save, place: Path, noise) -> None:
    made = [save(noise(2_000_000, i)) for i in range(3)]
    packs = list(place.glob("packs/*.pack"))
    assert packs
    for pack in packs:
        pack.unlink()
    with open_store(place) as again:
        assert again.list() == made[::-1]
        assert again.subjects()[0].count == 3
        assert again.head("state/x") == made[-1]
        assert [part.name for part in again.show(made[0]).parts] == ["part"]


def test_subjects_say_where_they_stand(store: Store, save) -> None:
    save(b"123", subject="state/a")
    latest = save(b"12345", subject="state/a")
    save(b"1", subject="session/b")
    a, b = {str(s.subject): s for s in store.subjects()}.values()
    assert str(a.subject) == "session/b"  # the last one touched
    assert (b.head, b.count, b.size_bytes) == (latest, 2, 5)


def test_others_see_what_was_committed(store: Store, save, place: Path) -> None:
    with open_store(place) as other:
        first = save(b"1")
        assert other.list() == [first]
        second = save(b"2", into=other)
        assert second.parents == (first.id,)
        assert store.head("state/x") == second


def test_restore_moves_the_head(store: Store, save) -> None:
    first, second = save(b"1"), save(b"2")
    assert store.restore(first) == first
    assert store.head("state/x") == first
    third = save(b"3")
    assert third.parents == (first.id,)
    assert [move.verb for move in store.history("state/x")] == [
        *("checkpoint", "checkpoint", "restore", "checkpoint")
    ]
    assert store.history("state/x")[2].before == second.id
    assert store.history("state/x")[2].after == first.id


def test_rollback_goes_back_by_a_new_checkpoint(store: Store, save) -> None:
    contents = [b"one", b"two", b"three"]
    first, second, third = (save(data, stage=data.decode()) for data in contents)
    back = store.rollback("state/x")
    assert store.head("state/x") == back
    assert back.id not in {first.id, second.id, third.id}
    assert (back.rollback_of, back.parents, back.stage) == (second.id, (third.id,), "two")
    assert store.read(back, "part") == b"two"
    assert back.stored_bytes == 0
    again = store.rollback("state/x")
    assert (again.rollback_of, again.parents) == (first.id, (back.id,))
    assert store.read("state/x", "part") == b"one"
    with pytest.raises(NotFound, match="first checkpoint") as caught:
        store.rollback("state/x")
    assert caught.value.hint
    chosen = store.rollback("state/x", third)
    assert store.read(chosen, "part") == b"three"
    with pytest.raises(NotFound):
        store.rollback("state/none")


def test_rollback_stays_within_its_subject(store: Store, save) -> None:
    save(b"1")
    other = save(b"2", subject="state/y")
    with pytest.raises(BadInput, match="another subject") as caught:
        store.rollback("state/x", other)
    assert "fork" in (caught.value.hint or "")
    store.fork("state/x", "z")
    with pytest.raises(NotFound, match="first checkpoint"):
        store.rollback("state/z")


def test_each_move_can_be_undone(store: Store, save) -> None:
    first, second = save(b"1"), save(b"2")
    store.restore(first)
    undone = store.undo("state/x")
    assert (undone.verb, undone.before, undone.after) == ("undo", first.id, second.id)
    assert store.head("state/x") == second
    store.undo("state/x")  # undoing twice does it again
    assert store.head("state/x") == first
    store.undo("state/x")
    back = store.rollback("state/x")
    store.undo("state/x")
    assert store.head("state/x") == second
    assert store.read(back, "part") == b"1"  # still there
    fork = store.fork(first, "y")
    store.undo("state/y")
    assert store.head("state/y") is None
    store.undo("state/y")
    assert store.head("state/y") == fork
    save(b"3")
    store.undo("state/x")
    assert store.head("state/x") == second
    with pytest.raises(NotFound):
        store.undo("state/none")


def test_a_move_to_what_is_gone_cannot_be_undone(store: Store, save) -> None:
    first, second = save(b"1"), save(b"2")
    store.restore(first)
    store.delete(second)
    with pytest.raises(NotFound, match=f"{second.id} .*deleted or pruned cannot be had back"):
        store.undo("state/x")
    assert store.head("state/x") == first
    store.delete(first)
    with pytest.raises(NotFound, match=f"{first.id} .*deleted or pruned cannot be had back"):
        store.undo("state/x")


def test_a_fork_is_a_new_subject(store: Store, save) -> None:
    first = save(b"content", stage="two")
    fork = store.fork(first, "y")
    assert (str(fork.subject), fork.parents, fork.stage) == ("state/y", (first.id,), "two")
    assert store.read(fork, "part") == b"content"
    assert store.head("state/x") == first
    assert str(store.fork("state/x", "state/z").subject) == "state/z"
    store.delete(first)
    store.prune()
    assert store.read(fork, "part") == b"content"


def test_a_fork_cannot_take_a_name_that_is_in_use(store: Store, save) -> None:
    first = save(b"1")
    taken = save(b"2", subject="state/y")
    for name in ("x", "y", "state/y"):
        with pytest.raises(Conflict, match="exists already") as caught:
            store.fork(first, name)
        assert caught.value.hint
    assert store.list("state/y") == [taken]
    store.delete(taken)
    assert store.read(store.fork(first, "y"), "part") == b"1"  # nothing is left of the old one
    with pytest.raises(BadInput):
        store.fork(first, "a b")


def test_a_head_that_is_deleted_moves_to_what_stays(store: Store, save) -> None:
    first, second, third, fourth = (save(bytes([i])) for i in range(4))
    store.delete(fourth)
    assert store.head("state/x") == third
    store.delete(second)
    store.delete(third)  # its parent is gone already
    assert store.head("state/x") == first
    store.delete(first)
    assert store.head("state/x") is None
    assert store.list() == []
    assert store.history("state/x")[-1].verb == "delete"
    with pytest.raises(NotFound, match="no checkpoint"):
        store.resolve("state/x")
    assert save(b"anew").parents == ()


def test_pins_and_tags_are_what_is_in_force_now(store: Store, save, place: Path) -> None:
    checkpoint = save(tags={"a": "1"})
    assert store.pin(checkpoint).pinned
    store.tag(checkpoint, "b", "2")
    with open_store(place) as other:
        found = other.resolve(checkpoint)
        assert (found.pinned, dict(found.tags)) == (True, {"a": "1", "b": "2"})
        other.unpin(checkpoint)
        other.untag(checkpoint, "a")
    found = store.resolve(checkpoint)
    assert (found.pinned, dict(found.tags)) == (False, {"b": "2"})
    assert found.digest == checkpoint.digest
    assert store.verify(deep=True).ok


def test_time_never_goes_back(store: Store, save) -> None:
    made = [save(bytes([i])) for i in range(50)]
    times = [one.time for one in made]
    assert times == sorted(set(times))
    assert [one.sequence for one in made] == sorted(one.sequence for one in made)
    assert abs(times[0] - moment.now()) < timedelta(minutes=1)


def test_after_a_clock_that_was_wrong_time_still_goes_on(store: Store, save, place: Path) -> None:
    # A machine whose clock was a thousand days ahead moved the head.
    first = save()
    future = moment.now() + timedelta(days=1000)
    id_ = UUID(first.id).bytes
    move = Move(
        subject="state/x", before=id_, after=id_, verb="restore", time=moment.to_micros(future)
    )
    header = encode_entry(move)
    key_id, mac = load_keyring().sign(signed_message(2, header))
    backend = LocalBackend(place)
    backend.entries(0)
    backend.append(Signed(seq=2, key_id=key_id, mac=mac, header=header))
    second, third = save(), save()
    assert second.time == future + timedelta(microseconds=1)
    assert third.time == future + timedelta(microseconds=2)


def test_eight_threads_write_and_read_one_store(store: Store, place: Path, noise) -> None:
    start = threading.Barrier(8)
    failures: list[BaseException] = []

    def work(number: int) -> list[tuple[str, bytes]]:
        made = []
        start.wait()
        for i in range(12):
            data = noise(1_200_000 if i % 6 == 5 else 3000 * (i + 1), 100 * number + i)
            with store.draft(f"session/{number % 4}") as draft:
                draft.put("part", data, ("pages", "whole", "content")[i % 3])  # type: ignore[arg-type]
                checkpoint = draft.commit()
            made.append((checkpoint.id, data))
            try:
                for _ in range(3):
                    assert any(one.id == checkpoint.id for one in store.list())
                    store.resolve(checkpoint.short)
                    store.subjects()
                assert store.read(checkpoint, "part") == data
                if i == 8:
                    store.prune()
            except BaseException as error:  # noqa: BLE001 - reported below, with the others
                failures.append(error)
        return made

    with ThreadPoolExecutor(8) as pool:
        made = [pair for pairs in pool.map(work, range(8)) for pair in pairs]
    assert failures == []
    with open_store(place) as again:
        assert len(again.list()) == 96
        for checkpoint, data in made:
            assert again.read(checkpoint, "part") == data
        assert again.verify(deep=True).ok
    assert living(place / "holds") == []
    assert not list(place.glob("tmp/*"))


def test_two_threads_cannot_fork_to_the_same_name(store: Store, save) -> None:
    checkpoint = save()
    start = threading.Barrier(4)

    def fork(_: int) -> bool:
        start.wait()
        try:
            store.fork(checkpoint, "same")
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(fork, range(4))) == 1
    assert len(store.list("state/same")) == 1
