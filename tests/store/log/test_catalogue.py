"""The catalogue: the fold of the log, on entries made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model.errors import BadInput, Conflict, NotFound
from holdfast.store.log.catalogue import Catalogue, id_bytes, id_text
from holdfast.store.log.entries import HERE, Commit, Condemn, Drop, Entry, Label, Move, Relocate
from holdfast.store.log.frames import Frame

A, B, C = (bytes([i]) * 16 for i in (1, 2, 3))
LOG, P, Q, R, S = (name * 16 for name in (b"l", b"p", b"q", b"r", b"s"))


def commit(id_: bytes, *, volumes: bytes = b"", subject: str = "state/x", **other: Any) -> Commit:
    fields: dict[str, Any] = {
        "parents": (),
        "reason": "",
        "stage": None,
        "time": 10,
        "tags": {},
        "digest": id_ * 2,
        "size": 1,
        "stored": 1,
        "part_count": 0,
        "parts": b"",
        "parts_chunk": b"",
        "chunk_ids": b"",
        "chunk_sizes": (),
        "verb": "checkpoint",
        "before": None,
        "rollback_of": None,
    }
    return Commit(id=id_, subject=subject, volumes=volumes, **{**fields, **other})


def fold(*entries: Entry) -> Catalogue:
    catalogue = Catalogue()
    for seq, entry in enumerate(entries, 1):
        frame = Frame(
            seq=seq,
            key_id=b"k" * 8,
            mac=bytes(32),
            header=b"",
            origin=LOG,
            body_offset=0,
            body_size=0,
        )
        catalogue.apply(frame, entry, foreign=False)
    return catalogue


def test_commits_moves_and_drops() -> None:
    move = Move(subject="state/x", before=B, after=A, verb="restore", time=12)
    now = fold(commit(A), commit(B, time=11), move)
    assert now.seq == 3
    assert now.last_time == 12
    assert [one.commit.id for one in now.newest_first()] == [B, A]
    assert now.head("state/x") is now.record(A)
    assert [m.verb for m in now.moves("state/x")] == ["checkpoint", "checkpoint", "restore"]
    dropped = fold(commit(A), commit(B), Drop(ids=(A, C), time=13))
    assert list(dropped.records) == [B]
    with pytest.raises(NotFound):
        dropped.record(A)


def test_labels_change_what_is_in_force() -> None:
    now = fold(
        commit(A, tags={"a": "1", "b": "2"}),
        Label(id=A, set={"a": "9", "c": ""}, unset=("b",), pinned=True, time=1),
        Label(id=A, set={}, unset=(), pinned=None, time=2),
        Label(id=C, set={"x": ""}, unset=(), pinned=True, time=3),  # of one that is gone
    )
    record = now.record(A)
    assert record.tags == {"a": "9", "c": ""}
    assert record.pinned
    assert record.commit.tags == {"a": "1", "b": "2"}


def test_volumes_follow_relocations() -> None:
    now = fold(
        commit(A, volumes=P + HERE),
        Relocate(volume=P, to=Q + R, time=1),
        commit(B, volumes=P),  # named after the move: another life of the same name
        Relocate(volume=R, to=S, time=2),
        Relocate(volume=LOG, to=b"", time=3),
    )
    assert now.volumes(now.record(A)) == [(Q, S), ()]
    assert now.volumes(now.record(B)) == [(P,)]
    assert now.live_volumes() == {Q, S, P}
    assert [one.commit.id for one in now.dependents([S])] == [A]


def test_what_was_condemned_or_moved_cannot_be_referred_to() -> None:
    now = fold(
        commit(A, volumes=P + Q + S),
        Condemn(volumes=Q, time=1),
        Relocate(volume=P, to=R, time=2),
    )
    assert now.is_usable(S, 3)
    assert not now.is_usable(LOG, 3)  # nothing names it: its writer may have died
    assert not now.is_usable(Q, 3)
    assert not now.is_usable(P, 1)
    assert now.is_usable(P, 3)


@pytest.mark.parametrize(
    "wrong", [{"subject": "nonsense"}, {"subject": "state/a b"}, {"time": 2**62}]
)
def test_an_entry_that_makes_no_sense_changes_nothing(wrong: dict[str, Any]) -> None:
    now = fold(commit(A))
    frame = now.record(A).frame
    with pytest.raises(BadInput):
        now.apply(frame, commit(B, **wrong), foreign=True)
    assert list(now.records) == [A]
    assert set(now.heads) == {"state/x"}


def test_a_name_is_free_when_nothing_is_left_of_its_subject() -> None:
    now = fold(commit(A), commit(B, subject="state/y"), Drop(ids=(B,), time=1))
    now.check_free("state/y")
    now.check_free("state/z")
    with pytest.raises(Conflict):
        now.check_free("state/x")


def test_ids_as_text() -> None:
    text = id_text(bytes(range(16)))
    assert text == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert id_bytes(text) == id_bytes(text.upper()) == bytes(range(16))
    for other in ("", "abc", text[:-1], text.replace("-", ""), f"{{{text}}}", f"urn:uuid:{text}"):
        assert id_bytes(other) is None
