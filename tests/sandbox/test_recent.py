"""Moments that are still on this machine's disk."""

from __future__ import annotations

from pathlib import Path

from holdfast.sandbox.live import Frozen
from holdfast.sandbox.recent import Recent


def frozen(folder: Path, size: int) -> Frozen:
    (folder / "image").mkdir(parents=True)
    (folder / "image" / "pages.img").write_bytes(bytes(size))
    (folder / "files.tar").write_bytes(b"tar")
    files, image = folder / "files.tar", folder / "image"
    return Frozen(files=files, image=image, epoch=1, executions=[], running=[])


def test_a_moment_outlives_its_box_and_is_given_once(tmp_path: Path) -> None:
    recent = Recent(tmp_path / "recent")
    recent.keep("one", frozen(tmp_path / "box", 10))
    assert list((tmp_path / "box").iterdir()) == []
    taken = recent.take("one")
    assert taken is not None
    assert (taken.image / "pages.img").stat().st_size == 10
    assert taken.files.read_bytes() == b"tar"
    assert recent.take("one") is None
    taken.discard()
    assert not taken.image.exists()


def test_the_oldest_goes_first_and_giants_never_come(tmp_path: Path) -> None:
    recent = Recent(tmp_path / "recent", most=100)
    for name in ("one", "two", "three"):
        recent.keep(name, frozen(tmp_path / name, 40))
    assert recent.take("one") is None
    assert recent.take("three") is not None
    giant = frozen(tmp_path / "giant", 1000)
    recent.keep("giant", giant)
    assert recent.take("giant") is None
    assert not giant.image.exists()
    assert sorted(path.name for path in (tmp_path / "recent").iterdir()) == ["three", "two"]
