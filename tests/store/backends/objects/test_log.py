"""The log in a bucket: lost replies, late writers, and what folding leaves."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from obstore.store import MemoryStore

from holdfast.model.errors import NotFound
from holdfast.store.backends.contract import Behind
from holdfast.store.backends.objects import layout
from holdfast.store.backends.objects.address import Address
from holdfast.store.backends.objects.bucket import Bucket
from holdfast.store.backends.objects.cache import Cache
from holdfast.store.backends.objects.clients import connect
from holdfast.store.backends.objects.log import ObjectLog
from holdfast.testing.backends import entry
from holdfast.testing.proxies import LossyProxy
from holdfast.testing.servers import Server


class Place:
    """A bucket in memory, and machines that use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore()
        self.count = 0

    def log(self, bundle: int = 1000) -> ObjectLog:
        self.count += 1
        log = ObjectLog(Bucket(self.store), Cache(self.folder / str(self.count)), bundle)
        log.entries(0)
        return log

    def keys(self, prefix: str) -> list[str]:
        return [one.key for one in Bucket(self.store).listed(prefix)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def fill(log: ObjectLog, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        log.append(entry(seq, b"body %d" % seq))


# -- trouble behind a commit


@pytest.mark.parametrize("refused", ["PUT /bucket/{}/folds/", "POST /bucket?delete"])
def test_bundle_failures_fail_no_append(
    s3: Server, prefix: str, tmp_path: Path, refused: str
) -> None:
    """The entry that a bundle would have gone with is durable: an error would have it written
    again."""
    with LossyProxy(s3.port) as proxy:
        environ = s3.environ | {"HOLDFAST_S3_ENDPOINT": proxy.endpoint}
        bucket = Bucket(connect(Address("s3", "bucket", prefix), environ))
        log = ObjectLog(bucket, Cache(tmp_path / "one"), bundle=20)
        log.entries(0)
        fill(log, 1, 19)
        proxy.failing, proxy.failure = refused.format(prefix).encode(), "403 Forbidden"
        proxy.fail = 1000
        fill(log, 20, 65)
        assert proxy.failed > 0
        assert proxy.failed < 30, "it is not tried again with each entry"
        proxy.fail = 0
        fill(log, 66, 90)
        other = ObjectLog(bucket, Cache(tmp_path / "two"), bundle=20)
        assert [frame.seq for frame in other.entries(0).frames] == [*range(1, 91)]
        assert [one.key for one in bucket.listed("folds")]


# -- lost replies


def lossy(s3: Server, proxy: LossyProxy, prefix: str, folder: Path) -> ObjectLog:
    environ = s3.environ | {"HOLDFAST_S3_ENDPOINT": proxy.endpoint}
    bucket = Bucket(connect(Address("s3", "bucket", prefix), environ))
    log = ObjectLog(bucket, Cache(folder))
    log.entries(0)
    proxy.marked = f"PUT /bucket/{prefix}/log/".encode()
    return log


@pytest.mark.parametrize("replies", [1, 3])
def test_a_lost_reply_is_recognised(s3: Server, prefix: str, tmp_path: Path, replies: int) -> None:
    """The entry is there, once, and whoever wrote it knows."""
    with LossyProxy(s3.port) as proxy:
        log = lossy(s3, proxy, prefix, tmp_path)
        log.append(entry(1, b"one"))
        proxy.lose = replies
        frame = log.append(entry(2, b"two"))
        assert proxy.lost == replies
        assert frame.seq == 2
        log.append(entry(3))
        direct = ObjectLog(
            Bucket(connect(Address("s3", "bucket", prefix), s3.environ)), Cache(tmp_path / "b")
        )
        assert [f.seq for f in direct.entries(0).frames] == [1, 2, 3]


def test_somebody_elses_win_is_not_taken_for_a_lost_reply(
    s3: Server, prefix: str, tmp_path: Path
) -> None:
    """Even if it says the same: the nonce is another."""
    with LossyProxy(s3.port) as proxy:
        log = lossy(s3, proxy, prefix, tmp_path / "a")
        other = ObjectLog(
            Bucket(connect(Address("s3", "bucket", prefix), s3.environ)), Cache(tmp_path / "b")
        )
        other.entries(0)
        other.append(entry(1, b"same"))
        proxy.lose = 1
        with pytest.raises(Behind):
            log.append(entry(1, b"same"))


# -- numbers


def test_a_writer_that_slept_for_long_cannot_append_into_the_past(place: Place) -> None:
    """Its number was trimmed long ago, and is taken all the same."""
    sleeper, log = place.log(), place.log()
    fill(log, 1, 5)
    log.compact(entry(5), [])
    assert log.trim(5, set()) > 0
    with pytest.raises(Behind):
        sleeper.append(entry(1))
    tail = sleeper.entries(0)
    assert (tail.base, tail.reset) == (5, True)
    sleeper.append(entry(6))


def test_a_reader_that_slept_for_long_begins_anew(place: Place) -> None:
    sleeper, log = place.log(), place.log()
    fill(log, 1, 2)
    assert [f.seq for f in sleeper.entries(0).frames] == [1, 2]
    fill(log, 3, 6)
    log.compact(entry(6), [])
    log.trim(6, set())
    log.entries(6)
    fill(log, 7, 8)
    tail = sleeper.entries(2)
    assert (tail.reset, tail.base) == (True, 6)
    assert [f.seq for f in tail.frames if f.seq > 6] == [7, 8]


# -- folds


def test_bundles_keep_the_number_of_objects_small(place: Place) -> None:
    log = place.log(bundle=4)
    fill(log, 1, 200)
    assert len(place.keys("folds")) <= 6
    bucket = Bucket(place.store)
    reader = ObjectLog(bucket, Cache(place.folder / "reader"))
    assert [f.seq for f in reader.entries(0).frames] == list(range(1, 201))
    assert bucket.traffic.requests < 20


def test_two_who_write_bundles_do_not_disturb_each_other(place: Place) -> None:
    ours, theirs = place.log(bundle=4), place.log(bundle=5)
    for seq in range(1, 121):
        mine = ours if seq % 3 else theirs
        mine.entries(seq - 1)
        mine.append(entry(seq, b"body %d" % seq))
    frames = place.log().entries(0).frames
    assert [f.seq for f in frames] == list(range(1, 121))
    late = place.log()
    for frame in frames:
        first = layout.segment_first(frame.origin)
        assert first is not None
        assert late.read(first, frame.body_offset, frame.body_size) == b"body %d" % frame.seq


def damage(place: Place, key: str) -> None:
    data = bytearray(bytes(obstore.get(place.store, key).bytes()))
    data[len(data) // 2] ^= 1
    obstore.put(place.store, key, bytes(data))


def test_a_damaged_bundle_is_named_and_done_without(place: Place) -> None:
    fill(place.log(bundle=4), 1, 30)
    for key in place.keys("folds"):
        damage(place, key)
    log = place.log()
    tail = log.entries(-1)
    assert [f.seq for f in tail.frames] == list(range(1, 31))
    assert {one.file for one in tail.damage} <= set(place.keys("folds"))
    assert tail.damage
    assert {one.file for one in log.audit()} == set(place.keys("folds"))


def test_a_damaged_entry_is_named_and_spares_the_others(place: Place) -> None:
    fill(place.log(), 1, 5)
    data = bytes(obstore.get(place.store, layout.entry_key(3)).bytes())
    obstore.put(place.store, layout.entry_key(3), data[:100] + b"X" + data[101:])
    log = place.log()
    tail = log.entries(-1)
    assert [f.seq for f in tail.frames] == [1, 2, 4, 5]
    assert [one.file for one in tail.damage] == [layout.entry_key(3)]
    assert [one.file for one in log.audit()] == [layout.entry_key(3)]
    log.append(entry(6))


def test_a_long_header_is_read_whole(place: Place) -> None:
    log = place.log()
    log.append(entry(1, b"body", text="long " * 20_000))
    (frame,) = place.log().entries(-1).frames
    assert frame.header == entry(1, text="long " * 20_000).header


def test_what_was_trimmed_is_said_to_be_gone(place: Place) -> None:
    log = place.log()
    fill(log, 1, 3)
    (frame, *_) = log.entries(-1).frames
    log.compact(entry(3), [])
    log.trim(3, set())
    first = layout.segment_first(frame.origin)
    assert first is not None
    with pytest.raises(NotFound):
        place.log().read(first, frame.body_offset, frame.body_size)
