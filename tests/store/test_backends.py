"""The conformance suite, on every backend there is."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from holdfast.model.errors import NotFound, Unsupported
from holdfast.store import open_store
from holdfast.store.backends.contract import Backend
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.backends.memory import MemoryBackend
from holdfast.store.backends.objects.address import Address
from holdfast.store.backends.objects.backend import ObjectBackend
from holdfast.store.backends.objects.bucket import Bucket
from holdfast.store.backends.objects.cache import Cache
from holdfast.store.backends.objects.clients import connect
from holdfast.testing.backends import BackendSuite
from holdfast.testing.google import GoogleServer
from holdfast.testing.servers import AzuriteServer, Server


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


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = AzuriteServer(tmp_path_factory.mktemp("azurite"))
    server.start()
    yield server
    server.stop()


@pytest.mark.soak
class TestAzure(ObjectSuite):
    """On Microsoft's own emulator."""

    @pytest.fixture
    def place(self, azure: Server, prefix: str, tmp_path: Path) -> Machines:
        store = connect(Address("az", "bucket", prefix), azure.environ)
        return Machines(Bucket(store), tmp_path, bundle=1000)

    def test_a_store_at_an_address(
        self, azure: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in azure.environ.items():
            monkeypatch.setenv(name, value)
        data = random.Random(0).randbytes(3_000_000)
        with open_store(f"az://bucket/{prefix}") as store:
            with store.lease("state/x") as lease, store.draft("state/x", lease=lease) as draft:
                draft.put("part", data, split="segment")
                draft.commit()
            assert store.verify(deep=True).ok
        monkeypatch.setenv("HOLDFAST_HOME", f"{os.environ['HOLDFAST_HOME']}/another")
        with open_store(f"az://bucket/{prefix}", create=False) as again:
            assert again.read("state/x", "part", trust=True) == data
        with pytest.raises(NotFound, match="bucket"):
            open_store("az://missing/store")


class TestGoogle(ObjectSuite):
    """Through Google's own protocol, on a server of the tests' own: there is no other."""

    @pytest.fixture
    def google(self) -> Iterator[GoogleServer]:
        with GoogleServer() as server:
            yield server

    @pytest.fixture
    def place(self, google: GoogleServer, prefix: str, tmp_path: Path) -> Machines:
        store = connect(Address("gs", "bucket", prefix), google.environ)
        return Machines(Bucket(store), tmp_path, bundle=1000)

    def test_a_store_at_an_address(
        self, google: GoogleServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in google.environ.items():
            monkeypatch.setenv(name, value)
        data = random.Random(0).randbytes(12_000_000)
        with open_store("gs://bucket/some/store") as store:
            with store.lease("state/x") as lease, store.draft("state/x", lease=lease) as draft:
                draft.put("part", data, split="segment")
                draft.commit()
            assert store.verify(deep=True).ok
        assert all(key.startswith("some/store/") for key in google.objects)
        monkeypatch.setenv("HOLDFAST_HOME", f"{os.environ['HOLDFAST_HOME']}/another")
        with open_store("gs://bucket/some/store", create=False) as again:
            assert again.read("state/x", "part", trust=True) == data
        with pytest.raises(NotFound):
            open_store("gs://bucket/other", create=False)

    def test_one_that_ignores_conditions_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with GoogleServer(conditions=False) as bad:
            for name, value in bad.environ.items():
                monkeypatch.setenv(name, value)
            with open_store("gs://bucket/store") as store:
                with pytest.raises(Unsupported, match="conditions"):
                    store.lease("state/x")
                with store.draft("state/x") as draft:
                    draft.put("part", b"x")
                    with pytest.raises(Unsupported, match="nothing is written"):
                        draft.commit()


class TestObjectsInMemory(ObjectSuite):
    """Without a server, and with bundles that are written and merged all the time."""

    @pytest.fixture(params=[1, 3])
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> Machines:
        return Machines(Bucket(MemoryStore()), tmp_path, bundle=request.param)
