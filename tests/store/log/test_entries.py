"""Entries: what is written can be read, and what cannot be read is never written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import BadInput, Corrupt, Unsupported
from holdfast.store.log.entries import (
    Commit,
    Condemn,
    Drop,
    Entry,
    Label,
    Move,
    Relocate,
    Upto,
    decode_entry,
    encode_entry,
)

ID, NAME, HASH = b"i" * 16, b"n" * 16, b"h" * 32
FIELDS: dict[str, Any] = {
    "id": ID,
    "subject": "state/x",
    "parents": (ID,),
    "reason": "why",
    "stage": None,
    "time": 1,
    "tags": {"a": "b"},
    "digest": HASH,
    "size": 1,
    "stored": 1,
    "part_count": 1,
    "parts": b"\x90",
    "parts_chunk": b"",
    "volumes": NAME * 2,
    "chunk_ids": HASH,
    "chunk_sizes": (1, 1, 0),
    "verb": "checkpoint",
    "before": None,
    "rollback_of": ID,
}
ENTRIES: list[Entry] = [
    Commit(**FIELDS),
    Move(subject="state/x", before=None, after=ID, verb="restore", time=2),
    Label(id=ID, set={"a": ""}, unset=("b",), pinned=None, time=3),
    Drop(ids=(ID, ID), time=4),
    Relocate(volume=NAME, to=NAME * 3, time=5),
    Condemn(volumes=NAME, time=6),
    Upto(seq=7, count=3),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_entries_read_back(entry: Entry) -> None:
    header = encode_entry(entry)
    assert decode_entry(header) == entry
    assert msgspec.msgpack.decode(header)[0] == type(entry).__name__.lower()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_elements_of_a_later_version_are_ignored(entry: Entry) -> None:
    listed = [*msgspec.msgpack.decode(encode_entry(entry)), "something new", {"more": 1}]
    assert decode_entry(msgspec.msgpack.encode(listed)) == entry


def test_missing_elements_have_their_defaults() -> None:
    listed = msgspec.msgpack.decode(encode_entry(Commit(**FIELDS, fence=9)))
    assert decode_entry(msgspec.msgpack.encode(listed[: 1 + len(FIELDS)])) == Commit(
        **FIELDS, fence=0
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": b"short"},
        {"parents": (ID, b"")},
        {"digest": b"h"},
        {"parts_chunk": b"h"},
        {"volumes": NAME[:-1]},
        {"chunk_ids": HASH[:-1]},
        {"chunk_sizes": ()},
        {"chunk_sizes": (1, 1)},
        {"chunk_sizes": (-1, 1, 0)},
        {"chunk_sizes": (2**40, 1, 0)},
        {"before": b"x"},
        {"rollback_of": b"x" * 17},
        {"tags": {"a": 1}},
        {"reason": None},
        {"stage": 5},
        {"verb": "dance"},
        {"subject": "\ud800"},
        {"time": 2**70},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_neither_written_nor_read(wrong: dict[str, Any]) -> None:
    entry = Commit(**{**FIELDS, **wrong})
    with pytest.raises(BadInput):
        encode_entry(entry)
    try:
        header = msgspec.msgpack.encode(entry)
    except (UnicodeEncodeError, OverflowError):
        return  # not even msgpack can hold it
    with pytest.raises(Corrupt):
        decode_entry(header)


@pytest.mark.parametrize(
    "entry",
    [
        Move(subject="state/x", before=b"1", after=None, verb="undo", time=1),
        Label(id=b"1", set={}, unset=(), pinned=None, time=1),
        Drop(ids=(b"1",), time=1),
        Relocate(volume=b"1", to=b"", time=1),
        Relocate(volume=NAME, to=b"1", time=1),
        Condemn(volumes=b"1", time=1),
    ],
    ids=lambda entry: type(entry).__name__,
)
def test_ids_and_names_have_their_length(entry: Entry) -> None:
    with pytest.raises(Corrupt, match="length"):
        decode_entry(msgspec.msgpack.encode(entry))


def test_an_unknown_type_is_of_a_newer_version() -> None:
    with pytest.raises(Unsupported, match="teleport") as caught:
        decode_entry(msgspec.msgpack.encode(["teleport", 1]))
    assert caught.value.hint


@given(st.binary(max_size=100))
def test_garbage_is_corrupt(garbage: bytes) -> None:
    with pytest.raises((Corrupt, Unsupported)):
        decode_entry(garbage)
