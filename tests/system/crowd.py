"""One of many processes that use a store at once. It says what it did, line by line, on its output.

usage: crowd.py ROLE STORE NUMBER SECONDS
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from blake3 import blake3

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Conflict, NotFound
from holdfast.store.backends.objects.address import Address
from holdfast.store.backends.objects.backend import ObjectBackend
from holdfast.store.backends.objects.bucket import Bucket
from holdfast.store.backends.objects.cache import Cache
from holdfast.store.backends.objects.clients import connect
from holdfast.store.keys import load_keyring
from holdfast.store.opening import open_store
from holdfast.store.retention import Last, Tagged
from holdfast.store.store import Store

TORN = "an interrupted append looks the same"
_written = itertools.count()  # by this process


def open_place(place: str) -> Store:
    """The store; in an object store one where the dead are known as such after seconds."""
    if not place.startswith("s3://"):
        return open_store(place)
    address = Address.parse(place)
    home = Path(os.environ["HOLDFAST_HOME"])
    # Some share a cache, as processes of one machine do, and some are on a machine of their own.
    machine = random.choice(("one", "two", str(os.getpid())))
    backend = ObjectBackend(
        place,
        lambda: Bucket(connect(address, os.environ)),
        lambda store_id: Cache(home / machine / store_id, 50_000_000),
        bundle=20,
        linger=0.5,
        lifetime=15,
    )
    return Store(backend, load_keyring())


def say(*words: object) -> None:
    """One line, in one write, so that a kill never leaves half of it."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def content(recipe: str) -> bytes:
    """Bytes that a recipe stands for. Neighbours share most of them, so that chunks are shared."""
    seed, size, change = recipe.split()
    data = bytearray(blake3(seed.encode()).digest(length=int(size)))
    data[:8] = int(change).to_bytes(8, "little")
    return bytes(data)


def write(store: Store, number: int, chance: random.Random) -> None:
    """Small and large ones; the second and every tenth is tagged, and must be there at the end."""
    size = chance.choice((2_000, 60_000, 400_000, 1_500_000))
    recipe = f"seed{chance.randrange(6)} {size} {chance.randrange(1000)}"
    subject = f"state/crowd-{number}"
    data = content(recipe)
    tags = {"keep": "1"} if next(_written) == 1 or chance.random() < 0.1 else {}
    with store.draft(subject, reason=recipe, tags=tags) as draft:
        draft.put("pages", data, split="pages")
        draft.put("segment", data, split="segment")
        draft.put("content", data, split="content")
        draft.put("value", {"recipe": recipe}, split="structure")
        saved = draft.commit()
    say("kept" if tags else "saved", saved.id, recipe)


def read(store: Store, number: int, chance: random.Random) -> None:
    """Any checkpoint, whole; one that retention takes away meanwhile is no loss."""
    found = store.list()
    if not found:
        return
    one = chance.choice(found)
    try:
        look(store, one)
    except NotFound:
        assert one.id not in {left.id for left in store.list()}, f"{one.id} cannot be found"
    say("read", one.id)


def look(store: Store, one: Checkpoint) -> None:
    wanted = content(one.reason)
    for part in ("pages", "segment", "content"):
        assert store.read(one, part) == wanted, f"{part} of {one.id} differs"
    assert store.value(one, "value") == {"recipe": one.reason}
    with store.map(one, "segment", verify="first") as mapping:
        assert mapping.view == wanted, f"the mapping of {one.id} differs"
    with store.open(one, "pages") as stream:
        assert stream.read() == wanted, f"the stream of {one.id} differs"


def prune(store: Store, number: int, chance: random.Random) -> None:
    """Keep what is tagged, and the last few of each subject."""
    report = store.prune(Last(3) | Tagged())
    say("pruned", len(report.removed), report.reclaimed_bytes)


def verify(store: Store, number: int, chance: random.Random) -> None:
    problems = store.verify(deep=chance.random() < 0.5).problems
    wrong = [str(problem) for problem in problems if TORN not in problem.what]
    assert not wrong, f"verify: {wrong[:3]}"
    say("verified")


def anew(store: Store, number: int, chance: random.Random) -> None:
    """Whoever opens the store now sees the same as whoever has it open."""
    with open_place(store.url) as other:
        write(other, number, chance)


ROLES: dict[str, list[Callable[[Store, int, random.Random], None]]] = {
    "writer": [write, write, write, read, anew],
    "reader": [read],
    "pruner": [prune, read],
    "verifier": [verify],
}


def main(role: str, place: str, number: int, seconds: float) -> None:
    chance = random.Random(f"{role} {number} {os.getpid()}")
    deadline = time.monotonic() + seconds
    store = open_place(place)
    for turn in itertools.count():
        if turn and time.monotonic() >= deadline:  # once at least, however slow the machine is
            break
        try:
            chance.choice(ROLES[role])(store, number, chance)
        except Conflict as error:
            say("conflict", error)
    say("done")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
