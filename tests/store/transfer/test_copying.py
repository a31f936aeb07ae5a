"""Copying: a store is brought up to date, only what it lacks travels, and no head is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, NotFound
from holdfast.store import Store, open_store
from holdfast.store.keys import Key, Keyring
from holdfast.store.retention import Last

Noise = Callable[..., bytes]


def save(store: Store, data: bytes, subject: str = "session/x", **about: str) -> Checkpoint:
    with store.draft(subject, **about) as draft:  # type: ignore[arg-type]
        draft.put("memory", data, split="pages")
        return draft.commit()


def equal(a: Store, b: Store) -> bool:
    """Whether two stores have the same checkpoints, byte for byte, and the same heads."""
    ours, theirs = ({one.id: one for one in store.list()} for store in (a, b))
    return (
        ours.keys() == theirs.keys()
        and all(one.digest == theirs[one.id].digest for one in ours.values())
        and all(
            a.read(one, part.name, trust=True) == b.read(one, part.name, trust=True)
            for one in ours.values()
            for part in a.show(one).parts
        )
        and {s.subject: s.head and s.head.id for s in a.subjects()}
        == {s.subject: s.head and s.head.id for s in b.subjects()}
    )


def test_everything_comes_over(source: Store, stranger: Store, line: list[Checkpoint]) -> None:
    source.rollback("session/x")
    source.fork(line[1], "y")
    source.tag(line[0], "base", "1")
    source.pin(line[0])
    report = source.copy_to(stranger)
    assert len(report.copied) == 6
    assert set(report.moved) == {"session/x", "session/y"}
    assert equal(source, stranger)
    assert stranger.verify(deep=True).ok
    first = stranger.resolve(line[0].id)
    assert (first.tags["base"], first.pinned, first.foreign) == ("1", True, True)
    assert stranger.resolve("session/x").rollback_of == line[-2].id


def test_the_second_time_nothing_travels(
    source: Store, stranger: Store, line: list[Checkpoint]
) -> None:
    source.copy_to(stranger)
    before = stranger.usage()
    again = source.copy_to(stranger)
    assert (again.copied, again.already, again.moved, again.transferred_bytes) == ((), 4, (), 0)
    assert stranger.usage() == before


def test_only_what_changed_travels(source: Store, stranger: Store, noise: Noise) -> None:
    image = bytearray(noise(8_000_000))
    save(source, bytes(image))
    assert source.copy_to(stranger).transferred_bytes > 7_900_000
    image[1_000_000] ^= 1
    last = save(source, bytes(image))
    report = source.copy_to(stranger)
    assert report.transferred_bytes < 20_000
    assert stranger.head("session/x") == report.copied[0]
    assert stranger.read(last, "memory", trust=True) == image


def test_one_subject_alone(source: Store, stranger: Store) -> None:
    save(source, b"a", "state/a")
    save(source, b"b", "state/b")
    source.copy_to(stranger, "state/b")
    assert [str(one.subject) for one in stranger.subjects()] == ["state/b"]
    with pytest.raises(NotFound):
        source.copy_to(stranger, "state/none")


def test_a_head_that_went_its_own_way_stays(
    source: Store, stranger: Store, line: list[Checkpoint]
) -> None:
    source.copy_to(stranger)
    own = save(stranger, b"own work")
    save(source, b"more")
    report = source.copy_to(stranger)
    assert len(report.copied) == 1
    assert [subject for subject, _ in report.apart] == ["session/x"]
    assert stranger.head("session/x") == own
    back = stranger.copy_to(source)
    assert len(back.copied) == 1
    assert [subject for subject, _ in back.apart] == ["session/x"]


def test_there_and_back(source: Store, stranger: Store) -> None:
    save(source, b"one")
    source.copy_to(stranger)
    save(stranger, b"two")
    report = stranger.copy_to(source)
    assert report.moved == ("session/x",)
    assert source.read("session/x", "memory", trust=True) == b"two"
    assert source.resolve("session/x").foreign
    assert not source.resolve("session/x~1").foreign


def test_an_owned_subject_keeps_its_head(source: Store, stranger: Store) -> None:
    save(source, b"one")
    source.copy_to(stranger)
    save(source, b"two")
    with stranger.lease("session/x", owner="somebody"):
        report = source.copy_to(stranger)
    ((_, why),) = report.apart
    assert "somebody" in why
    assert len(report.copied) == 1
    assert source.copy_to(stranger).moved == ("session/x",)


def test_a_dry_run_does_nothing(source: Store, stranger: Store, line: list[Checkpoint]) -> None:
    report = source.copy_to(stranger, dry_run=True)
    assert report.dry_run
    assert [one.id for one in report.copied] == [one.id for one in line]
    assert report.moved == ("session/x",)
    assert stranger.list() == []


def test_labels_follow_and_what_is_there_stays(
    source: Store, stranger: Store, line: list[Checkpoint]
) -> None:
    source.copy_to(stranger)
    stranger.tag(line[0], "theirs")
    source.tag(line[0], "ours")
    source.pin(line[1])
    source.copy_to(stranger)
    assert {"theirs", "ours"} <= stranger.resolve(line[0].id).tags.keys()
    assert stranger.resolve(line[1].id).pinned


def test_what_is_damaged_does_not_hold_up_the_rest(
    source: Store, stranger: Store, tmp_path: Path, noise: Noise
) -> None:
    bad = save(source, noise(3_000_000, 1), "state/bad")
    (pack,) = (tmp_path / "source" / "packs").iterdir()
    good = save(source, noise(3_000_000, 2), "state/good")
    data = bytearray(pack.read_bytes())
    data[5000] ^= 1
    pack.write_bytes(data)
    report = source.copy_to(stranger)
    assert [one.id for one, _ in report.failed] == [bad.id]
    assert [one.id for one in report.copied] == [good.id]
    assert "state/bad" in dict(report.apart)
    assert stranger.verify(deep=True).ok


def test_small_checkpoints_stay_small(source: Store, stranger: Store) -> None:
    for number in range(30):
        with source.draft("state/s") as draft:
            draft.put("value", {"n": number}, split="structure")
            draft.commit()
    source.copy_to(stranger)
    assert stranger.usage().packs == 0
    assert equal(source, stranger)


def test_what_was_vouched_for_stays_so(source: Store, tmp_path: Path) -> None:
    """A copy of one's own store is as trusted as the store."""
    other = open_store("memory://", keyring=Keyring(Key.generate()))
    save(other, b"theirs")
    with open_store(tmp_path / "mine") as mine:
        other.export("session/x", tmp_path / "gift")
        mine.import_(tmp_path / "gift", trust=True)
        mine.copy_to(source)
    assert not source.resolve("session/x").foreign


def test_the_same_store_twice(source: Store, tmp_path: Path) -> None:
    with open_store(tmp_path / "source") as again, pytest.raises(BadInput):
        source.copy_to(again)


def test_encrypting_everything_anew(source: Store, line: list[Checkpoint], tmp_path: Path) -> None:
    """A plain store into an encrypted one, that into one with another key, and back."""
    with (
        open_store(tmp_path / "one", encrypt=True, passphrase="one") as one,
        open_store(tmp_path / "two", encrypt=True, passphrase="two") as two,
        open_store(tmp_path / "back") as back,
    ):
        source.copy_to(one)
        one.copy_to(two)
        two.copy_to(back)
        assert equal(source, back)
        assert all(store.verify(deep=True).ok for store in (one, two, back))
        assert one._ledger.cipher.check != two._ledger.cipher.check
        back.prune(Last(1))
        assert len(two.list()) == 4


def test_through_a_real_object_store(
    source: Store, line: list[Checkpoint], on_s3: str, tmp_path: Path
) -> None:
    key = "open sesame"
    with (
        open_store(on_s3, encrypt=True, passphrase=key) as bucket,
        open_store(tmp_path / "back") as back,
    ):
        source.copy_to(bucket)
        assert source.copy_to(bucket).transferred_bytes == 0
        bucket.copy_to(back)
        assert equal(source, back)
        assert bucket.verify(deep=True).ok
        (slot,) = bucket._ledger.backend.slots().values()
        assert b"passphrase" in slot
    with open_store(on_s3, passphrase=key) as again:
        assert again.head("session/x") == again.resolve(line[-1].id)


COPY = """
import sys
from holdfast.store import open_store
source, target = open_store(sys.argv[1]), open_store(sys.argv[2])
print("go", flush=True)
source.copy_to(target)
"""


def test_a_copy_that_was_killed_goes_on(source: Store, tmp_path: Path, noise: Noise) -> None:
    for number in range(12):
        save(source, noise(1_500_000, number), f"state/{number}")
    place = tmp_path / "target"
    open_store(place).close()
    counts = []
    for turn in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", COPY, str(tmp_path / "source"), str(place)],
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        child.stdout.readline()
        try:
            child.wait(0.05 * (turn + 1))
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        with open_store(place) as target:
            counts.append(len(target.list()))
            assert target.verify(deep=True).ok
        if counts[-1] == 12:
            break
    with open_store(place) as target:
        source.copy_to(target)
        assert equal(source, target)
    assert counts == sorted(counts)


@pytest.mark.parametrize("call", ["fdatasync", "rename"])
def test_a_copy_killed_at_each_step_leaves_nothing_half_there(
    source: Store, tmp_path: Path, noise: Noise, call: str
) -> None:
    """Packs, their names, entries, heads: whatever was next, the store is whole and goes on."""
    made = [save(source, noise(1_200_000, number), f"state/{number}") for number in range(2)]
    killed = 0
    for step in range(1, 40):
        place = tmp_path / f"target {step}"
        open_store(place).close()
        inject = f"inject={call}:signal=KILL:when={step}"
        command = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e", inject, sys.executable, "-c"]
        done = subprocess.run(
            [*command, COPY, str(tmp_path / "source"), str(place)], stdout=subprocess.PIPE
        )
        with open_store(place) as target:
            there = target.list()
            assert {each.id for each in there} <= {each.id for each in made}
            assert target.verify(deep=True).ok
            source.copy_to(target)
            assert equal(source, target)
        if done.returncode == 0:
            break
        killed += 1
    assert killed
    assert done.returncode == 0  # the last one came to its end
