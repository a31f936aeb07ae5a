"""A moment that is stored while it is still being written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.model.errors import CaptureFailed
from holdfast.model.subject import Subject
from holdfast.sandbox import keeping
from holdfast.sandbox.coming import Coming, Moment
from holdfast.store import Store, open_store

SUBJECT = Subject("sandbox", "0" * 32)
PAGES = [bytes([number]) * 300_000 for number in range(1, 9)]
ENVIRONMENT = {"engine": "one that is slow"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as store:
        yield store


@pytest.fixture
def moment(tmp_path: Path) -> Moment:
    """What there will be: the image is missing yet."""
    (tmp_path / "files.tar").write_bytes(bytes(1024))
    return Moment({"epoch": 7}, tmp_path / "files.tar", tmp_path / "image")


@pytest.fixture
def saving() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def write(image: Path, pages: list[bytes]) -> None:
    image.mkdir(exist_ok=True)
    with (image / "pages.img").open("ab") as file:
        for page in pages:
            file.write(page)
            file.flush()


def test_what_is_written_in_order_is_stored_meanwhile(
    store: Store, moment: Moment, saving: ThreadPoolExecutor
) -> None:
    coming, image = Coming(), moment.image
    assert image is not None
    saved = saving.submit(
        keeping.save, store, SUBJECT, coming, reason="slow", environment=ENVIRONMENT
    )
    coming.begins(image, ["pages.img"])
    write(image, PAGES[:5])
    assert not saved.done()
    write(image, PAGES[5:])
    (image / "checkpoint.img").write_bytes(b"the rest")
    coming.is_there(moment)
    made = saved.result(30)
    assert store.read(made, "memory/pages.img") == b"".join(PAGES)
    assert store.read(made, "memory/checkpoint.img") == b"the rest"
    assert store.value(made, "config") == {"format": keeping.FORMAT, "epoch": 7}
    assert store.verify(deep=True).ok


@pytest.mark.parametrize("how", ["before it begins", "without a file", "in the middle"])
def test_a_moment_that_never_comes_leaves_nothing(
    store: Store, moment: Moment, saving: ThreadPoolExecutor, how: str
) -> None:
    coming, image = Coming(), moment.image
    assert image is not None
    saved = saving.submit(
        keeping.save, store, SUBJECT, coming, reason="slow", environment=ENVIRONMENT
    )
    if how != "before it begins":
        coming.begins(image, ["pages.img"])
    if how == "in the middle":
        write(image, PAGES)
    coming.fails()
    with pytest.raises(CaptureFailed, match="not frozen after all"):
        saved.result(30)
    assert store.list() == []
    assert store.verify(deep=True).ok


def test_engines_of_which_nothing_is_known_are_waited_for(store: Store, moment: Moment) -> None:
    coming, image = Coming(), moment.image
    assert image is not None
    write(image, PAGES)
    told = threading.Timer(0.05, lambda: (coming.begins(image, ()), coming.is_there(moment)))
    told.start()
    made = keeping.save(store, SUBJECT, coming, reason="slow", environment=ENVIRONMENT)
    told.join()
    assert store.read(made, "memory/pages.img") == b"".join(PAGES)


def test_a_file_that_was_promised_and_never_made_is_no_part(store: Store, moment: Moment) -> None:
    coming, image = Coming(), moment.image
    assert image is not None
    write(image, PAGES)
    coming.begins(image, ["other.img"])
    coming.is_there(moment)
    made = keeping.save(store, SUBJECT, coming, reason="slow", environment=ENVIRONMENT)
    names = {part.name for part in store.show(made).parts}
    assert names == {"config", "environment", "files/upper", "memory/pages.img"}
