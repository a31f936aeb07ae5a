"""spec/store-v1.md is enough: a second reader, written from it, reads what the first one wrote."""

from __future__ import annotations

import ast
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.store import second_reader
from tests.store.maker import DATA, load_maker
from tests.store.second_reader import Checkpoint, Reader

from holdfast.store import open_store
from holdfast.store.keys import Key, Keyring

EXPECTED = json.loads((DATA / "store-v1" / "expected.json").read_text())
KEY = bytes.fromhex((DATA / "store-v1" / "key").read_text())


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(DATA / "store-v1" / "store", KEY)


def test_the_second_reader_uses_nothing_of_the_first() -> None:
    tree = ast.parse(Path(second_reader.__file__ or "").read_text())
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    named = [node.names for node in ast.walk(tree) if isinstance(node, ast.Import)]
    modules |= {alias.name for names in named for alias in names}
    assert "blake3" in modules
    assert not {"holdfast", "tests", "importlib"} & {name.partition(".")[0] for name in modules}


def test_the_log_and_the_snapshot_tell_the_same_checkpoints(reader: Reader) -> None:
    assert len(reader.checkpoints) == len(EXPECTED["store"])
    for wanted in EXPECTED["store"]:
        one = checkpoint(reader, wanted["id"])
        commit = one.commit
        assert commit["subject"] == wanted["subject"]
        assert [parent.hex() for parent in commit["parents"]] == [
            parent.replace("-", "") for parent in wanted["parents"]
        ]
        assert (commit["reason"], commit["stage"]) == (wanted["reason"], wanted["stage"])
        assert (commit["digest"].hex(), commit["size"]) == (wanted["digest"], wanted["size_bytes"])
        assert (one.tags, one.pinned, one.foreign) == (
            wanted["tags"],
            wanted["pinned"],
            wanted["foreign"],
        )
        assert written(commit["rollback_of"]) == wanted["rollback_of"]


def test_heads_and_their_moves(reader: Reader) -> None:
    assert {s: written(head) for s, head in reader.heads.items() if head} == EXPECTED["heads"]
    moves = [
        [verb, written(before), written(after)]
        for subject, verb, before, after in reader.moves
        if subject == "session/analysis"
    ]
    assert moves == EXPECTED["moves"]


@pytest.mark.parametrize("wanted", EXPECTED["store"], ids=lambda one: one["id"][-4:])
def test_every_part_comes_back(reader: Reader, wanted: dict[str, Any]) -> None:
    one = checkpoint(reader, wanted["id"])
    contents = load_maker().contents(wanted["step"])
    assert [(part[0], part[2]) for part in one.parts] == sorted(
        (name, split) for name, (split, _) in contents.items()
    )
    for name, (_, data) in contents.items():
        found = reader.read(one, name)
        assert found == data, name
        assert repr(found) == repr(data)  # the order of keys, and which zero it is


def test_a_store_of_today(tmp_path: Path) -> None:
    """What the committed one is too small or too old for: deltas, maps of several leaves, a list of
    parts that is a chunk, and a runway."""
    dice = random.Random(5)
    image = bytearray(dice.randbytes(3 * 256 * 1024 + 777))
    store = open_store(tmp_path / "store", keyring=Keyring(Key(KEY)))
    wanted: dict[str, dict[str, Any]] = {}
    for step in range(4):
        for at in range(0, len(image) - 8, 4096):  # a word of each page
            image[at + 8 * step : at + 8 * step + 3] = dice.randbytes(3)
        parts: dict[str, Any] = {
            "image": bytes(image),
            "holes": bytes(70 << 20) + b"end",  # more blocks than a leaf has
            "words": {"step": step, "list": list(range(20_000)), "raw": b"\0\1" * 90_000},
            **{f"many/{i:03}": b"%d" % (i + step) for i in range(60)},
        }
        with store.draft("session/now") as draft:
            draft.put("image", parts["image"], "pages", skew=16)
            draft.put("holes", parts["holes"], "pages")
            draft.put("words", parts["words"], "structure")
            for name in parts:
                if name.startswith("many/"):
                    draft.put(name, parts[name], "whole")
            wanted[draft.commit().id] = parts
    reader = Reader(tmp_path / "store", KEY)
    ones = {which: checkpoint(reader, which) for which in wanted}
    for which, parts in wanted.items():
        for name, data in parts.items():
            assert reader.read(ones[which], name) == data, name
    last = list(ones.values())[-1]
    assert last.commit["parts_chunk"]
    assert [len(leaf) for leaf in reader.leaves(last, "image")] == [4]  # with deltas
    assert len(reader.leaves(last, "holes")) == 2
    (segment,) = (tmp_path / "store" / "log").glob("*.log")
    assert segment.read_bytes().endswith(bytes(64))


def checkpoint(reader: Reader, which: str) -> Checkpoint:
    return reader.checkpoints[bytes.fromhex(which.replace("-", ""))]


def written(which: bytes | None) -> str | None:
    """An id as people see it."""
    if which is None:
        return None
    text = which.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
