"""Export and import: everything arrives, nothing changes, and nobody's work becomes somebody
else's on the way."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, Conflict, Denied, NotFound
from holdfast.store import Store, open_store
from holdfast.store.keys import Key, Keyring
from holdfast.store.slots import Secret
from holdfast.testing.strategies import BYTE_SPLITS, contents, values

PARTS = ("content", "empty", "memory", "segment", "value", "whole")
Archive = Callable[..., bytes]


def same(a: Store, b: Store, checkpoint: Checkpoint) -> bool:
    """Whether both stores have the checkpoint, byte for byte."""
    here, there = a.show(checkpoint), b.show(checkpoint)
    return here.parts == there.parts and all(
        a.read(checkpoint, part.name, trust=True) == b.read(checkpoint, part.name, trust=True)
        for part in here.parts
    )


def test_a_checkpoint_arrives_whole(
    source: Store, stranger: Store, line: list[Checkpoint], archive: Archive
) -> None:
    came = stranger.import_(io.BytesIO(archive()))
    last = line[-1]
    assert (came.id, came.digest, came.time, came.reason, came.stage, came.parents, came.tags) == (
        (last.id, last.digest, last.time, last.reason, last.stage, last.parents, last.tags)
    )
    assert {part.name for part in stranger.show(came).parts} == set(PARTS)
    assert same(source, stranger, came)
    assert stranger.verify(deep=True).ok
    assert stranger.head("session/x") == came


def test_ancestors_come_along_in_order(
    source: Store, stranger: Store, line: list[Checkpoint], archive: Archive
) -> None:
    report = stranger.import_archive(io.BytesIO(archive(ancestors=True)))
    assert [one.id for one in report.imported] == [one.id for one in line]
    assert all(same(source, stranger, one) for one in line)
    assert stranger.resolve("session/x~3").id == line[0].id
    stored = [one.stored_bytes for one in report.imported]
    assert stored[0] > 1_000_000
    assert sum(stored) <= stranger.usage().disk_bytes  # none is counted twice
    assert [move.verb for move in stranger.history("session/x")] == ["import"]


def test_a_segment_can_still_be_mapped(
    stranger: Store, line: list[Checkpoint], archive: Archive, tmp_path: Path
) -> None:
    with open_store(tmp_path / "other") as other:
        came = other.import_(io.BytesIO(archive()))
        with other.map(came, "segment", verify="first") as mapping:
            assert mapping.mapped_bytes > 600_000


def test_what_a_stranger_made_stays_theirs(
    stranger: Store, line: list[Checkpoint], archive: Archive
) -> None:
    came = stranger.import_(io.BytesIO(archive()))
    assert came.foreign
    assert came.signer == line[-1].signer
    with pytest.raises(Denied):
        stranger.read(came, "whole")
    with pytest.raises(Denied):
        stranger.restore(came)
    with pytest.raises(Denied):
        stranger.fork(came, "mine")
    stranger.restore(came, trust=True)


def test_trust_vouches_and_provenance_stays(
    stranger: Store, line: list[Checkpoint], archive: Archive
) -> None:
    came = stranger.import_(io.BytesIO(archive()), trust=True)
    assert not came.foreign
    assert came.signer == line[-1].signer
    assert stranger.read(came, "empty") == b""


def test_ones_own_checkpoint_comes_back_as_ones_own(
    source: Store, line: list[Checkpoint], archive: Archive, tmp_path: Path
) -> None:
    with open_store(tmp_path / "mine") as other:
        came = other.import_(io.BytesIO(archive()))
    assert not came.foreign


def test_provenance_survives_a_stranger_in_between(
    source: Store, stranger: Store, line: list[Checkpoint], archive: Archive, tmp_path: Path
) -> None:
    stranger.import_(io.BytesIO(archive()), trust=True)
    again = io.BytesIO()
    stranger.export("session/x", again)
    with open_store(tmp_path / "home") as home:  # has the maker's key, not the stranger's
        came = home.import_(io.BytesIO(again.getvalue()))
        assert not came.foreign
    third = open_store("memory://", keyring=Keyring(Key.generate()))
    assert third.import_(io.BytesIO(again.getvalue())).foreign  # another's trust is not ours


def test_knowing_the_makers_key_makes_it_known(
    line: list[Checkpoint], archive: Archive, holdfast_home: Path, tmp_path: Path
) -> None:
    mine = Key.generate()
    place = tmp_path / "elsewhere"
    with open_store(place, keyring=Keyring(mine)) as store:
        assert store.import_(io.BytesIO(archive())).foreign
    maker = Key.from_text((holdfast_home / "key").read_text())
    with open_store(place, keyring=Keyring(mine, [maker])) as store:
        assert not store.resolve("session/x").foreign


def test_labels_travel(source: Store, stranger: Store, line: list[Checkpoint]) -> None:
    source.tag(line[-1], "release", "1.0")
    source.untag(line[-1], "score")
    source.pin(line[-1])
    stream = io.BytesIO()
    source.export(line[-1], stream)
    stream.seek(0)
    came = stranger.import_(stream)
    assert came.tags == {"release": "1.0"}
    assert came.pinned
    assert came.digest == line[-1].digest


def test_importing_twice_changes_nothing(
    stranger: Store, line: list[Checkpoint], archive: Archive
) -> None:
    stranger.import_(io.BytesIO(archive()))
    before = stranger.usage()
    report = stranger.import_archive(io.BytesIO(archive()))
    assert (len(report.imported), len(report.already)) == (0, 1)
    assert stranger.usage() == before
    later = stranger.import_archive(io.BytesIO(archive(ancestors=True)))
    assert (len(later.imported), len(later.already)) == (3, 1)
    assert stranger.head("session/x") == later.checkpoint


def test_a_head_that_is_there_stays(
    stranger: Store, line: list[Checkpoint], archive: Archive
) -> None:
    with stranger.draft("session/x") as draft:
        draft.put("own", b"work")
        own = draft.commit()
    stranger.import_(io.BytesIO(archive()))
    assert stranger.head("session/x") == own
    assert len(stranger.list("session/x")) == 2
    with stranger.draft("session/x") as draft:
        assert draft.commit().parents == (own.id,)


def test_an_import_does_not_move_the_clock(source: Store, stranger: Store) -> None:
    """A checkpoint dated at the end of time must not end the time of the store it comes to."""
    from holdfast.model import moment
    from holdfast.store.parts.part import Facts, digest
    from holdfast.store.transfer.receiver import Receiver
    from holdfast.store.transfer.waybill import Waybill

    end = moment.to_micros(moment.from_text("9999-12-31T23:59:59.999999Z"))
    facts = Facts(
        id=b"i" * 16,
        subject="state/late",
        parents=(),
        reason="",
        stage=None,
        time=end,
        tags={},
        rollback_of=None,
    )
    waybill = Waybill(
        id=facts.id,
        subject=facts.subject,
        parents=(),
        reason="",
        stage=None,
        time=end,
        tags={},
        rollback_of=None,
        digest=digest(facts, []),
        parts=(),
        maker=bytes(8),
        proof=b"",
        labels={},
    )
    with Receiver(stranger._ledger) as receiver:
        receiver.announce(waybill)
        receiver.commit(trust=False)
    assert stranger.head("state/late") is not None
    with stranger.draft("state/now") as draft:
        assert draft.commit().time.year < 9999


def test_a_fork_brings_its_origin(source: Store, stranger: Store, line: list[Checkpoint]) -> None:
    source.rollback("session/x")
    source.fork("session/x", "y")
    stream = io.BytesIO()
    source.export("session/y", stream, ancestors=True)
    stream.seek(0)
    report = stranger.import_archive(stream)
    assert len(report.imported) == 6
    assert {str(one.subject) for one in stranger.subjects()} == {"session/x", "session/y"}
    assert all(one.head is not None for one in stranger.subjects())
    assert stranger.resolve("session/y").parents == (source.resolve("session/x").id,)


def test_through_a_pipe(source: Store, stranger: Store, line: list[Checkpoint]) -> None:
    reading, writing = os.pipe()

    def send() -> None:
        with open(writing, "wb") as out:
            source.export("session/x", out)

    thread = threading.Thread(target=send)
    thread.start()
    with open(reading, "rb") as stream:
        came = stranger.import_(stream)
    thread.join()
    assert same(source, stranger, came)


def test_a_file_appears_when_it_is_whole(
    source: Store, line: list[Checkpoint], tmp_path: Path
) -> None:
    target = tmp_path / "out" / "x.holdfast"
    with pytest.raises(NotFound):
        source.export("session/x", target)
    target.parent.mkdir()
    target.write_bytes(b"precious")
    with pytest.raises(Conflict):
        source.export("session/x", target, replace=False)
    with pytest.raises(NotFound):
        source.export("session/none", target)
    assert target.read_bytes() == b"precious"
    source.export("session/x", target)
    assert target.stat().st_size > 1_000_000
    assert [path.name for path in target.parent.iterdir()] == ["x.holdfast"]


def test_what_is_no_file_is_not_replaced_by_one(
    source: Store, line: list[Checkpoint], tmp_path: Path
) -> None:
    """Whoever may write into /dev must not lose /dev/null."""
    device = tmp_path / "null"
    os.mkfifo(device)
    for target in (device, tmp_path):
        with pytest.raises(BadInput, match="no file"):
            source.export("session/x", target, replace=True)
    assert device.is_fifo()


def test_where_files_have_one_name_only(
    source: Store, line: list[Checkpoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a stick with FAT, on which archives are carried."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "x.holdfast"
    source.export("session/x", target, replace=False)
    whole = target.read_bytes()
    assert len(whole) > 1_000_000
    with pytest.raises(Conflict):
        source.export("session/x", target, replace=False)
    assert target.read_bytes() == whole
    assert [path.name for path in tmp_path.glob("*x.holdfast*")] == ["x.holdfast"]


def test_progress_reaches_the_end(source: Store, stranger: Store, line: list[Checkpoint]) -> None:
    seen: list[tuple[int, int]] = []
    stream = io.BytesIO()
    source.export("session/x", stream, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0
    stream.seek(0)
    told: list[tuple[int, int]] = []
    stranger.import_(stream, progress=lambda done, total: told.append((done, total)))
    assert told == seen


def test_small_checkpoints_make_no_pack(source: Store, stranger: Store) -> None:
    with source.draft("state/small") as draft:
        draft.put("value", {"a": 1}, split="structure")
        draft.commit()
    stream = io.BytesIO()
    source.export("state/small", stream)
    stream.seek(0)
    stranger.import_(stream)
    assert stranger.usage().packs == 0
    assert stranger.value("state/small", "value", trust=True) == {"a": 1}


def test_what_was_pruned_and_collected_comes_back(
    source: Store, stranger: Store, line: list[Checkpoint], archive: Archive
) -> None:
    data = archive(ancestors=True)
    stranger.import_(io.BytesIO(data), trust=True)
    stranger.delete(*line)
    stranger.prune()
    assert stranger.list() == []
    stranger.import_(io.BytesIO(data), trust=True)
    assert stranger.verify(deep=True).ok
    assert all(same(source, stranger, one) for one in line)


@given(
    st.lists(
        st.tuples(contents(600_000), st.sampled_from(BYTE_SPLITS), st.integers(0, 4095)),
        min_size=1,
        max_size=4,
    ),
    values(),
    st.booleans(),
)
@settings(max_examples=20)
def test_whatever_it_holds_it_arrives(
    parts: list[tuple[bytes, Any, int]], value: Any, encrypted: bool
) -> None:
    source = open_store("memory://")
    secret = Secret("file", bytes(32))
    target = open_store("memory://", encrypt=encrypted, secret=secret if encrypted else None)
    for step in range(2):
        with source.draft("state/any") as draft:
            for number, (data, split, skew) in enumerate(parts):
                paged = split in ("pages", "segment")
                draft.put(f"{number}", data[step:], split, skew=skew if paged else 0)
            draft.put("value", value, split="structure")
            draft.commit()
    stream = io.BytesIO()
    source.export("state/any", stream, ancestors=True)
    stream.seek(0)
    assert stream.getvalue()[:16] == b"HOLDFAST-ARCHIVE"
    for one in target.import_archive(stream).imported:
        assert source.resolve(one.id).digest == one.digest
        for number, (data, _, _) in enumerate(parts):
            skipped = 0 if one.parents == () else 1
            assert target.read(one, f"{number}") == data[skipped:]
        assert target.value(one, "value") == value
    assert target.verify(deep=True).ok


def test_an_import_pushes_no_own_work_out(
    source: Store, stranger: Store, archive: Archive, save: Callable[..., Checkpoint]
) -> None:
    """Sixty old checkpoints come in; the default retention keeps the last fifty of a subject."""
    old = [save(b"%d" % i, subject="state/x", into=source) for i in range(60)]
    own = [save(b"own %d" % i, subject="state/x", into=stranger) for i in range(20)]
    stranger.import_(io.BytesIO(archive("state/x", ancestors=True)))
    report = stranger.prune()
    assert {one.id for one in report.removed} == {one.id for one in old[:30]}
    assert {one.id for one in stranger.list("state/x")} == {one.id for one in [*old[30:], *own]}
    assert stranger.head("state/x") == own[-1]


AHEAD = """
import sys, datetime
from holdfast.model import moment
real = moment.now
moment.now = lambda: real() + datetime.timedelta(days=3650)
from holdfast.store import open_store
with open_store(sys.argv[1]) as store:
    for i in range(60):
        with store.draft("state/x") as draft:
            draft.put("part", str(i).encode())
            draft.commit()
    store.export("state/x", sys.argv[2], ancestors=True)
"""


def test_a_clock_ahead_pushes_no_own_work_out(
    stranger: Store, save: Callable[..., Checkpoint], tmp_path: Path
) -> None:
    """What comes from a machine whose clock is ten years ahead was made before what is made here
    afterwards."""
    archive = tmp_path / "archive"
    subprocess.run([sys.executable, "-c", AHEAD, tmp_path / "ahead", archive], check=True)
    stranger.import_(archive, trust=True)
    own = [save(b"own %d" % i, subject="state/x", into=stranger) for i in range(50)]
    report = stranger.prune()
    assert len(report.removed) == 60
    assert stranger.list("state/x")[::-1] == own
