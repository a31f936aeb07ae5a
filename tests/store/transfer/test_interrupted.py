"""Imports that are killed: what is there is whole, and importing again brings the rest, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.conftest import Noise
from tests.store.transfer.conftest import Archive

from holdfast.model.checkpoint import Checkpoint
from holdfast.store import Store, open_store

COUNT = 12
# The append of that number is the last thing that it does: it dies right before, or right after.
IMPORT = """
import os, signal, sys
from holdfast.store import open_store
from holdfast.store.backends.local.backend import LocalBackend

left, when = int(sys.argv[3]), sys.argv[4]

class Doomed:
    def append(self, signed):
        global left
        left -= 1
        if not left and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        frame = append(self, signed)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return frame

append, LocalBackend.append = LocalBackend.append, Doomed.append
open_store(sys.argv[1]).import_(sys.argv[2])
"""


@pytest.fixture
def made(source: Store, noise: Noise) -> list[Checkpoint]:
    """A line of small and large checkpoints, with tags, other tags since, and pins."""
    found = []
    for number in range(COUNT):
        with source.draft("state/x", tags={"made": str(number)}) as draft:
            draft.put("part", noise(1_500_000 if number % 3 == 0 else 2000, number), "pages")
            found.append(draft.commit())
        if number % 2:
            source.tag(found[-1], "late", str(number))
            source.untag(found[-1], "made")
            source.pin(found[-1])
    return [source.resolve(one.id) for one in found]


def said(store: Store) -> list[tuple[str, str, dict[str, str], bool]]:
    return [(one.id, one.digest, dict(one.tags), one.pinned) for one in reversed(store.list())]


def kills() -> Iterator[tuple[int, str]]:
    for number in (1, 2, 3, 7, COUNT, COUNT + 1):
        yield number, "before"
        yield number, "after"


def test_an_import_that_was_killed_goes_on(
    source: Store, made: list[Checkpoint], archive: Archive, tmp_path: Path
) -> None:
    """At whatever entry it dies, those before it are complete, with their labels."""
    file = tmp_path / "x.holdfast"
    file.write_bytes(archive("state/x", ancestors=True))
    wanted = said(source)
    for number, when in kills():
        place = tmp_path / f"target-{number}-{when}"
        open_store(place).close()
        ended = subprocess.run(
            [sys.executable, "-c", IMPORT, str(place), str(file), str(number), when],
            env=os.environ,
            check=False,
        )
        assert ended.returncode == -signal.SIGKILL
        with open_store(place) as target:
            there = number - (when == "before")
            assert said(target) == wanted[: min(there, COUNT)]
            assert (target.head("state/x") is None) == (there <= COUNT)
            assert target.verify(deep=True).ok
            report = target.import_archive(file)
            assert len(report.imported) == COUNT - min(there, COUNT)
            assert said(target) == wanted
            head = target.head("state/x")
            assert head is not None
            assert head.id == made[-1].id
            # Nothing is there twice, and nothing of the dead one stays.
            seq = target._ledger.catalogue.seq
            again = target.import_archive(file)
            assert (again.imported, target._ledger.catalogue.seq) == ((), seq)
            target.prune()
            assert target.verify(deep=True).ok


def test_what_the_user_said_since_is_not_taken_back(
    source: Store, made: list[Checkpoint], archive: Archive, stranger: Store, tmp_path: Path
) -> None:
    file = tmp_path / "x.holdfast"
    file.write_bytes(archive("state/x"))
    came = stranger.import_(file)
    assert came.pinned
    stranger.unpin(came)
    stranger.untag(came, "late")
    again = stranger.import_(file)
    assert (again.pinned, dict(again.tags)) == (False, {})
