"""Parts: how they stand in a commit, and what the digest covers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_args

import msgspec
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.checkpoint import Split
from holdfast.model.errors import BadInput, Corrupt
from holdfast.store import Store, open_store
from holdfast.store.parts.part import (
    Facts,
    PartRecord,
    Pieces,
    check_part_name,
    decode_parts,
    decode_pieces,
    digest,
    encode_parts,
    encode_pieces,
)


def part(name: str, **other: Any) -> PartRecord:
    fields: dict[str, Any] = {
        "size": 5,
        "split": "whole",
        "root": b"r" * 32,
        "skew": 0,
        "inline": False,
        "map": b"m" * 64,
        "volumes": (0, 2),
    }
    return PartRecord(name=name, **{**fields, **other})


def test_lists_of_parts_read_back_sorted() -> None:
    listed = encode_parts([part("b"), part("a", inline=True), part("a/c")])
    assert [one.name for one in decode_parts(listed)] == ["a", "a/c", "b"]
    assert decode_parts(listed)[2].leaf_ids() == [b"m" * 32, b"m" * 32]
    assert decode_parts(listed)[0].leaf_ids() == []


@pytest.mark.parametrize("split", get_args(Split))
def test_a_part_of_pages_says_so(split: Split) -> None:
    assert part("a", split=split).paged == (split in ("pages", "segment"))
    assert len(msgspec.msgpack.decode(msgspec.msgpack.encode(part("a", split=split)))) == 8


@given(st.binary(max_size=60))
def test_garbage_is_corrupt(garbage: bytes) -> None:
    with suppress(Corrupt):
        assert decode_parts(garbage) == ()
    with suppress(Corrupt):
        assert isinstance(decode_pieces(garbage), Pieces)
    with pytest.raises(Corrupt):
        decode_parts(b"\x91\x98\xa1\x80" + garbage)  # a name that is not UTF-8


def test_pieces_read_back() -> None:
    pieces = Pieces(b"i" * 64, (1, 2))
    assert decode_pieces(encode_pieces(pieces)) == pieces


@pytest.mark.parametrize("name", ["a", "a/b", "memory/pages-1.img", "ü", "x" * 1024, "a b", "..."])
def test_good_names(name: str) -> None:
    check_part_name(name)


@pytest.mark.parametrize("name", ["", "/", "a/", "/a", "a/./b", "..", "\0", "x" * 1025, "\udc80"])
def test_bad_names(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_part_name(name)
    assert caught.value.hint


ABOUT: dict[str, Any] = {
    "id": b"c" * 16,
    "subject": "state/x",
    "parents": (b"p" * 16,),
    "reason": "why",
    "stage": None,
    "time": 5,
    "tags": {"b": "2", "a": "1"},
    "rollback_of": None,
    "parts": (part("b"), part("a")),
}


def digest_of(**changes: Any) -> bytes:
    about = {**ABOUT, **changes}
    parts = about.pop("parts")
    return digest(Facts(**about), parts)


def test_the_digest_is_what_the_specification_says() -> None:
    parts = [[name, 5, "whole", b"r" * 32, 0] for name in ("a", "b")]
    tags = [["a", "1"], ["b", "2"]]
    manifest = [1, b"c" * 16, "state/x", [b"p" * 16], "why", None, 5, tags, None, parts]
    assert digest_of() == blake3(msgspec.msgpack.encode(manifest)).digest()


@pytest.mark.parametrize(
    "change",
    [
        {"id": b"d" * 16},
        {"subject": "state/y"},
        {"parents": ()},
        {"reason": ""},
        {"stage": ""},
        {"time": 6},
        {"tags": {"a": "1"}},
        {"rollback_of": b"r" * 16},
        {"parts": (part("b"),)},
        {"parts": (part("b", size=6), part("a"))},
        {"parts": (part("b", root=b"s" * 32), part("a"))},
        {"parts": (part("b", split="content"), part("a"))},
        {"parts": (part("b", skew=16), part("a"))},
    ],
    ids=str,
)
def test_the_digest_covers_everything_logical(change: dict[str, Any]) -> None:
    assert digest_of(**change) != digest_of()


def test_the_digest_does_not_cover_where_things_are() -> None:
    moved = tuple(part(name, volumes=(7,), map=b"x" * 32, inline=True) for name in "ba")
    assert digest_of(parts=moved) == digest_of()


def test_a_digest_survives_moving(store: Store, save, noise) -> None:
    save(noise(5_000_000), subject="state/junk")
    made = [save(noise(500_000, i)) for i in range(10)]
    store.delete("state/junk")
    store.prune()
    with open_store(store.url) as again:
        for one in made:
            assert again.resolve(one.id).digest == one.digest
        assert again.verify(deep=True).ok
