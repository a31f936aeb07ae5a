"""The conformance suite, on every backend there is."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from holdfast.store.backends.contract import Backend
from holdfast.store.backends.local import LocalBackend
from holdfast.store.backends.memory import MemoryBackend
from holdfast.store.backends.objects.address import Address, connect
from holdfast.store.backends.objects.backend import ObjectBackend
from holdfast.store.backends.objects.bucket import Bucket
from holdfast.store.backends.objects.cache import Cache
from holdfast.testing.backends import BackendSuite
from holdfast.testing.servers import Server


class TestMemory(BackendSuite):
    @pytest.fixture
    def place(self) -> MemoryBackend:
        return MemoryBackend()

    def open(self, place: MemoryBackend) -> Backend:
        return place  # a store in memory is its own place


class TestLocal(BackendSuite):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path / "store"

    def open(self, place: Path) -> Backend:
        return LocalBackend(place)


class Machines:
    """A bucket, and a machine of its own for each who opens it: nobody shares a cache."""

    def __init__(self, bucket: Bucket, folder: Path, bundle: int) -> None:
        self._bucket = bucket
        self._folder = folder
        self._bundle = bundle
        self._numbers = itertools.count()

    def open(self) -> ObjectBackend:
        folder = self._folder / str(next(self._numbers))
        return ObjectBackend(
            "s3://bucket/test",
            lambda: Bucket(self._bucket._store),
            lambda store_id: Cache(folder / store_id),
            bundle=self._bundle,
            linger=0,  # what is released is seen to be released at once
        )


class ObjectSuite(BackendSuite):
    def open(self, place: Machines) -> Backend:
        return place.open()


class TestS3(ObjectSuite):
    """On a real server."""

    @pytest.fixture
    def place(self, s3: Server, prefix: str, tmp_path: Path) -> Machines:
        store = connect(Address("s3", "bucket", prefix), s3.environ)
        return Machines(Bucket(store), tmp_path, bundle=1000)


class TestObjectsInMemory(ObjectSuite):
    """Without a server, and with bundles that are written and merged all the time."""

    @pytest.fixture(params=[1, 3])
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> Machines:
        return Machines(Bucket(MemoryStore()), tmp_path, bundle=request.param)
