"""What is no file where a file is expected: said, never waited for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt, HoldfastError
from holdfast.store import Store, open_store

pytestmark = pytest.mark.timeout(20)

Make = Callable[[Path], None]


def bind(path: Path) -> None:
    # The name of a socket has at most 107 bytes.
    folder = os.open(path.parent, os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


STRANGE: dict[str, Make] = {
    "pipe": os.mkfifo,
    "socket": bind,
    "device": lambda path: os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5)),  # /dev/zero
    "directory": os.mkdir,
    "dangling link": lambda path: path.symlink_to("nowhere"),
}
strange = pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE.keys())


@strange
def test_in_the_place_of_a_pack(store: Store, save, place: Path, noise, make: Make) -> None:
    lost, kept = save(noise(2_000_000)), save(b"small", subject="state/y")
    (pack,) = place.glob("packs/*.pack")
    pack.unlink()
    make(pack)
    with open_store(place) as again:
        with pytest.raises(Corrupt):
            again.read(lost, "part")
        with pytest.raises(Corrupt):
            again.map(lost, "part", verify="first")
        report = again.verify(deep=True)
        assert {one for problem in report.problems for one in problem.affects} == {lost.id}
        assert again.read(kept, "part") == b"small"
        save(b"more", into=again, subject="state/y")


@strange
def test_in_the_place_of_a_log_segment(store: Store, save, place: Path, make: Make) -> None:
    save()
    (log,) = place.glob("log/*.log")
    log.unlink()
    make(log)
    with open_store(place) as again:
        assert again.list() == []
        assert any(log.name in str(problem) for problem in again.verify().problems)


@pytest.mark.parametrize("folder", ["packs", "log", "holds", "tmp", "leases"])
@strange
def test_beside_the_files_that_belong_there(
    store: Store, save, place: Path, noise, make: Make, folder: str
) -> None:
    name = {
        "packs": f"{'ab' * 16}.pack",
        "log": f"{1:016x}-{'ab' * 16}.log",
        "holds": f"{1:016x}-{'ab' * 8}",
        "tmp": f"{'ab' * 8}-{'ab' * 4}",
        "leases": "ab" * 16,
    }[folder]
    saved = [save(noise(2_000_000, i)) for i in range(2)]
    make(place / folder / name)
    if folder in ("tmp", "leases"):
        os.utime(place / folder / name, (0, 0), follow_symlinks=False)
    with open_store(place) as again:
        assert again.read(saved[1], "part") == noise(2_000_000, 1)
        report = again.verify(deep=True)
        if folder in ("packs", "log") and not (place / folder / name).is_symlink():
            assert any(name in str(problem) for problem in report.problems)
        save(b"more", into=again)
        if folder == "log":
            with pytest.raises(Corrupt, match="log"):
                again.prune()
        else:
            again.prune()
            assert [one.id for one in again.list()][1:] == [one.id for one in saved[::-1]]


@strange
def test_as_the_marker(place: Path, store: Store, save, make: Make) -> None:
    save()
    (place / "holdfast.json").unlink()
    make(place / "holdfast.json")
    with pytest.raises(HoldfastError):
        open_store(place)


@strange
def test_as_the_lock_of_the_log(place: Path, store: Store, save, make: Make) -> None:
    """It may even serve; otherwise it is said. Neither a wait nor an error that is not ours."""
    made = save()
    (place / "log/lock").unlink()
    make(place / "log/lock")
    with open_store(place) as again:
        assert again.read(made, "part") == b"content"
        for work in (again.verify, again.prune, lambda: save(b"more", into=again)):
            try:
                work()
            except HoldfastError as error:
                assert "log" in str(error)  # noqa: PT017


@pytest.mark.parametrize("folder", ["packs", "log", "holds", "tmp"])
@strange
def test_in_the_place_of_a_directory(
    place: Path, store: Store, save, make: Make, folder: str
) -> None:
    """Neither a wait without end nor an error that is not ours."""
    save()
    (place / folder).rename(place.with_name("aside"))
    make(place / folder)
    try:
        with open_store(place) as again:
            again.verify()
    except HoldfastError as error:
        assert "store" in str(error)  # noqa: PT017
