"""Presence: a process at work, told once for all its operations."""

from __future__ import annotations

import time

from obstore.store import MemoryStore

from holdfast.store.backends.objects.bucket import Bucket
from holdfast.store.backends.objects.presence import Presence


def test_many_operations_are_told_once() -> None:
    store = MemoryStore()
    bucket = Bucket(store)
    ours, theirs = Presence(bucket), Presence(Bucket(store))
    first = ours.hold(5)
    told = bucket.traffic.requests
    for _ in range(20):
        ours.hold(7).release()
    assert bucket.traffic.requests == told
    assert theirs.oldest() == 5
    first.release()
    assert theirs.oldest() == 5  # until it has been idle
    assert ours.oldest() is None  # but it knows better of itself
    ours.close()
    assert theirs.oldest() is None


def test_an_older_operation_is_told_before_it_begins() -> None:
    store = MemoryStore()
    ours, theirs = Presence(Bucket(store)), Presence(Bucket(store))
    ours.hold(9)
    assert theirs.oldest() == 9
    ours.hold(4)
    assert theirs.oldest() == 4


def test_whoever_is_idle_takes_it_back() -> None:
    store = MemoryStore()
    ours, theirs = Presence(Bucket(store), linger=0.05), Presence(Bucket(store))
    ours.hold(3).release()
    deadline = time.monotonic() + 20
    while theirs.oldest() is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert theirs.oldest() is None
    assert Bucket(store).listed("holds") == []


def test_whoever_goes_on_stays_and_moves_on() -> None:
    store = MemoryStore()
    ours, theirs = Presence(Bucket(store), linger=0.05), Presence(Bucket(store))
    early, late = ours.hold(3), ours.hold(8)
    early.release()
    deadline = time.monotonic() + 20
    while theirs.oldest() != 8 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert theirs.oldest() == 8
    late.release()


def test_whoever_is_silent_for_too_long_counts_as_dead() -> None:
    store = MemoryStore()
    dead, ours = Presence(Bucket(store), linger=1000), Presence(Bucket(store), lifetime=2)
    hold = dead.hold(3)
    assert ours.oldest() == 3
    assert any(hold.nonce.startswith(beginning) for beginning in ours.active())
    time.sleep(2.2)
    assert ours.oldest() is None
    assert ours.active() == set()
    assert Bucket(store).listed("holds") == []
