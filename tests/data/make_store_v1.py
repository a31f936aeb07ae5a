"""Makes tests/data/store-v1: a small store of format 1 with everything in it that the format has.

    python tests/data/make_store_v1.py

It is made once and committed; every later version must read it. What its parts hold is computed
by `contents`, which uses nothing of Holdfast; what the store said of its checkpoints when it was
made is in expected.json.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

PLACE = Path(__file__).with_name("store-v1")
OURS, THEIRS = bytes(range(32)), bytes(range(32, 64))  # keys; nothing secret is signed with them
PAGE = 4096
SKEW = 16


def noise(size: int, seed: int) -> bytes:
    """Bytes that look random, from a generator that will never change."""
    state, out = seed * 2 + 1, bytearray()
    while len(out) < size:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out += (state >> 16).to_bytes(6, "little")
    return bytes(out[:size])


def lines(count: int, word: str) -> bytes:
    return b"".join(b"%06d %s\n" % (i, word.encode()) for i in range(count))


def image(step: int) -> bytes:
    """Pages as a memory image has them: text, zeros, a little noise; some change with each step."""
    pages = [lines(200, f"page {i}")[:PAGE].ljust(PAGE, b".") for i in range(70)]
    for i in (3, 4, 5, 40, 66):
        pages[i] = bytes(PAGE)
    pages[10] = noise(PAGE, 10)
    for i in (7, 23, 66)[:step]:
        pages[i] = noise(PAGE, 100 * step + i)
    if step > 1:
        pages[23] = bytes(PAGE)
    return b"".join(pages)[: 69 * PAGE + 123 + step]


def array(step: int) -> bytes:
    data = bytearray(noise(3 * PAGE + 1000, 77))
    data[5000 : 5000 + 100 * step] = bytes(100 * step)
    return bytes(data)


def value(step: int) -> Any:
    return {
        "step": step,
        "texts": [f"line {i} {'x' * (i % 40)}" for i in range(300)],
        "numbers": [0, -1, 2**63, 2**64 - 1, 2**64, -(10**40), 0.1, -0.0, 1e300],
        "empty": {"": [], "null": None, "yes": True, "map": {}},
        "long": "é" * 150_000,
        "nested": {"a": {"b": {"c": {"changed": step}}}},
        "order": {"z": 1, "a": 2},
    }


def contents(step: int) -> dict[str, tuple[str, Any]]:
    """The parts of `session/analysis` after each step: name, split and bytes or value."""
    return {
        "environment": ("whole", b"" if step == 0 else lines(40, "variable")),
        "files/upper": ("content", b"#" * (11 * step) + lines(9000, "of a file")),
        "memory/image": ("pages", image(step)),
        "buffers/0": ("segment", array(step)),
        "namespace/0": ("structure", value(step)),
    }


def main() -> None:
    from holdfast.model import moment
    from holdfast.store import open_store
    from holdfast.store.keys import Key, Keyring

    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    (PLACE / "key").write_text(OURS.hex() + "\n")
    store = open_store(PLACE / "store", keyring=Keyring(Key(OURS)))
    steps: dict[str, int] = {}

    def save(step: int, into: Any = store, **about: Any) -> Any:
        with into.draft("session/analysis", **about) as draft:
            for name, (split, data) in contents(step).items():
                skew = SKEW if split in ("pages", "segment") else 0
                draft.put(name, data, split, skew=skew)
            checkpoint = draft.commit()
        steps[checkpoint.id] = step
        return checkpoint

    first = save(0, reason="first")
    second = save(1, reason="second", stage="cleaning", tags={"score": "0.5", "loss": "2"})
    for i in range(5):  # so that the log grows long enough to be folded
        with store.draft("state/bulk") as draft:
            draft.put("state", noise(950_000, 1000 + i))
            draft.commit()
    store.delete(*store.list("state/bulk"))
    steps[store.rollback("session/analysis", first).id] = 0
    store.prune()
    third = save(2, reason="third")
    store.tag(third, "golden", "yes")
    store.untag(second, "loss")
    store.pin(first)
    steps[store.fork(second, "other").id] = 1
    store.restore(second)
    theirs = open_store(PLACE / "store", keyring=Keyring(Key(THEIRS)))
    save(3, theirs, reason="made by another key")

    report = store.verify(deep=True)
    assert report.ok, report.problems
    expected = {
        "store": [
            {
                "id": one.id,
                "subject": str(one.subject),
                "parents": one.parents,
                "reason": one.reason,
                "stage": one.stage,
                "time": moment.to_text(one.time),
                "digest": one.digest,
                "size_bytes": one.size_bytes,
                "tags": dict(one.tags),
                "pinned": one.pinned,
                "rollback_of": one.rollback_of,
                "foreign": one.foreign,
                "step": steps[one.id],
            }
            for one in store.list()
        ],
        "heads": {
            str(one.subject): one.head.id for one in store.subjects() if one.head is not None
        },
        "moves": [
            [move.verb, move.before, move.after] for move in store.history("session/analysis")
        ],
    }
    (PLACE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
