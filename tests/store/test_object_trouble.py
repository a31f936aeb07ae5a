"""A store in a bucket in trouble: servers that fail for a while, keys that are wrong, no cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.store.conftest import Noise

from holdfast.model.errors import Denied, HoldfastError, NotFound, StorageFull
from holdfast.store import open_store
from holdfast.testing.proxies import LossyProxy
from holdfast.testing.servers import Server

MB = 1_000_000


@pytest.fixture
def proxy(s3: Server, on_s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyProxy]:
    with LossyProxy(s3.port) as made:
        monkeypatch.setenv("HOLDFAST_S3_ENDPOINT", made.endpoint)
        yield made


@pytest.mark.parametrize(
    "failure",
    ["500 Internal Server Error", "503 Slow Down", "429 Too Many Requests", "504 Gateway Timeout"],
)
def test_a_server_that_fails_for_a_while_is_waited_for(
    on_s3: str, proxy: LossyProxy, noise: Noise, failure: str
) -> None:
    proxy.failure = failure
    with open_store(on_s3) as store:
        for number, size in enumerate((100, 3 * MB)):
            proxy.fail = 7
            with store.draft("state/x") as draft:
                draft.put("part", noise(size, number), "segment")
                draft.commit()
            assert proxy.fail == 0
        assert len(store.list()) == 2
        assert store.read("state/x", "part") == noise(3 * MB, 1)
        assert store.verify(deep=True).ok
    assert proxy.failed == 14


def test_a_bucket_that_is_not_there_is_named(on_s3: str, proxy: LossyProxy) -> None:
    proxy.failure, proxy.fail = "404 Not Found", 1000  # SeaweedFS makes any bucket that is named
    with pytest.raises(NotFound, match=r"holdfast\.json") as caught:
        open_store(on_s3)
    assert "bucket" in (caught.value.hint or "")


def test_who_may_not_is_told_at_once(on_s3: str, proxy: LossyProxy) -> None:
    open_store(on_s3).close()
    proxy.failure, proxy.fail = "403 Forbidden", 1000
    with pytest.raises(Denied) as caught:
        open_store(on_s3)
    assert "credentials" in (caught.value.hint or "")
    assert proxy.failed < 5


def test_a_sign_of_life_that_cannot_be_removed_is_left(
    on_s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a server is gone, so is the lease, and the thread that kept it says nothing more."""
    said: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    told: list[HoldfastError] = []
    with open_store(on_s3) as store:
        lease = store.lease("state/x", ttl=1.0)
        for call in ("put", "delete"):
            monkeypatch.setattr(lease._beat._bucket, call, _unreachable)  # type: ignore[attr-defined]
        lease.keep(told.append)
        assert lease._keeper is not None
        lease._keeper.join(20)
        assert (len(told), said) == (1, [])


def _unreachable(*asked: object, **options: object) -> None:
    raise HoldfastError("the object store does not answer")


def test_a_clock_that_is_wrong_changes_nothing(on_s3: str, noise: Noise) -> None:
    """Two machines whose clocks are a year apart: order is the log's, and times never go back."""
    faketime = (
        "import sys, datetime\n"
        "from holdfast.model import moment\n"
        "real = moment.now\n"
        "moment.now = lambda: real() + datetime.timedelta(days=int(sys.argv[2]))\n"
        "from holdfast.store import open_store\n"
        "with open_store(sys.argv[1]) as store, store.draft('state/x') as draft:\n"
        "    draft.put('part', sys.argv[2].encode())\n"
        "    draft.commit()\n"
    )
    for days in ("365", "-365"):
        subprocess.run([sys.executable, "-c", faketime, on_s3, days], check=True)
    with open_store(on_s3) as store:
        found = list(reversed(store.list()))
        assert [store.read(one, "part") for one in found] == [b"365", b"-365"]
        assert [one.time for one in found] == sorted(one.time for one in found)
        assert [one.parents for one in found[1:]] == [(one.id,) for one in found[:-1]]
        assert store.verify(deep=True).ok


@pytest.fixture(params=["a file", "no room"])
def no_cache(request: pytest.FixtureRequest, holdfast_home: Path) -> Iterator[str]:
    """A machine that cannot keep anything: something is in the way, or the disk is full."""
    cache = holdfast_home / "cache"
    if request.param == "a file":
        cache.write_text("in the way")
        yield request.param
        return
    cache.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(cache)], check=True)
    try:
        yield request.param
    finally:
        subprocess.run(["umount", "-l", str(cache)], check=True)


def test_without_a_cache_everything_is_read(
    on_s3: str, noise: Noise, no_cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    here = os.environ["HOLDFAST_HOME"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    open_store("memory://").close()  # makes the key
    shutil.copy(Path(here, "key"), elsewhere / "key")
    monkeypatch.setenv("HOLDFAST_HOME", str(elsewhere))
    data = noise(5 * MB)
    with open_store(on_s3) as store, store.draft("state/x") as draft:
        draft.put("part", data, "segment")
        draft.put("small", b"small")
        draft.commit()
    monkeypatch.setenv("HOLDFAST_HOME", here)
    with open_store(on_s3) as store:
        assert store.read("state/x", "part") == data
        assert store.read("state/x", "small") == b"small"
        with store.map("state/x", "part", verify="first") as mapping:
            assert mapping.view == data
        # What is sent is written here first, so where there is no room at all nothing can be.
        fits = nullcontext() if no_cache == "a file" else pytest.raises(StorageFull)
        with fits, store.draft("state/y") as draft:
            draft.put("part", noise(3 * MB, 1), "segment")
            draft.commit()
        assert len(store.list()) == (2 if no_cache == "a file" else 1)
        assert store.verify(deep=True).ok
    del store, draft, mapping
    assert not list((tmp_path / "temporary").glob("holdfast-cache-*"))


def test_a_cache_that_is_cleared_is_made_again(
    on_s3: str, noise: Noise, holdfast_home: Path
) -> None:
    cache = holdfast_home / "cache"
    data = [noise(3 * MB, number) for number in range(4)]
    with open_store(on_s3) as store:
        for number, each in enumerate(data[:3]):
            with store.draft("state/x") as draft:
                draft.put("part", each, "segment")
                draft.commit()
            shutil.rmtree(cache)
            assert store.read("state/x", "part") == each
            assert len(store.list()) == number + 1
        with store.draft("state/x") as draft:
            draft.put("part", data[3], "segment")
            shutil.rmtree(cache)  # in the middle: what was written so far is in it
            draft.commit()
        assert store.read("state/x", "part") == data[3]
        assert store.read("state/x~3", "part") == data[0]
        assert store.verify(deep=True).ok


def test_several_packs_are_on_their_way_at_once(
    on_s3: str, proxy: LossyProxy, noise: Noise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = noise(100_000_000)
    with open_store(on_s3) as store, store.draft("state/x") as draft:
        draft.put("part", data, "segment")
        saved = draft.commit()
    assert proxy.at_once >= 2
    proxy.at_once, proxy.wait = 0, 0.1  # long enough for those who ask at once to meet
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "another machine"))
    with open_store(on_s3, keyring=store._ledger.keyring) as other:
        assert other.read(saved, "part") == data
    assert proxy.at_once >= 2
