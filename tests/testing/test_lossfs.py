"""The disk that forgets keeps what POSIX promises, and nothing more. All power tests rest on it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from holdfast.model.disk import Disk
from holdfast.oci.places import exchange
from holdfast.testing.power import Power, powered


@pytest.fixture(scope="module")
def power(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Power]:
    with powered(tmp_path_factory.mktemp("power") / "disk") as power:
        yield power


def names(power: Power) -> list[str]:
    return sorted(os.listdir(power.root))


def test_bytes_and_names_are_lost_apart(power: Power) -> None:
    power.load()
    disk = Disk()
    disk.write(power.root / "nameless", b"synced", "probe")
    power.cut("nothing")
    assert names(power) == []

    (power.root / "empty").write_bytes(b"not synced")
    disk.sync_directory(power.root, "probe")
    disk.write(power.root / "whole", b"synced", "probe")
    disk.sync_directory(power.root, "probe")
    power.cut("nothing")
    assert names(power) == ["empty", "whole"]
    assert (power.root / "empty").read_bytes() == b""
    assert (power.root / "whole").read_bytes() == b"synced"


def test_a_removal_lasts_when_it_is_synced(power: Power) -> None:
    power.load()
    Disk().write(power.root / "file", b"kept", "probe")
    Disk().sync_directory(power.root, "probe")
    for loss, left in (("nothing", ["file"]), ("removals", [])):
        (power.root / "file").unlink()
        power.cut(loss)
        assert names(power) == left


def test_an_exchange_is_one_for_each_folder(power: Power) -> None:
    """Whoever exchanges two names of two folders has to sync both."""
    for synced, left in (((), "ab"), (("one",), "bb"), (("two",), "aa"), (("one", "two"), "ba")):
        power.load()
        folders = power.root / "one", power.root / "two"
        for folder, content in zip(folders, (b"a", b"b"), strict=True):
            folder.mkdir()
            Disk().write(folder / "file", content, "probe")
            Disk().sync_directory(folder, "probe")
        Disk().sync_directory(power.root, "probe")
        exchange(folders[0] / "file", folders[1] / "file")
        assert [(folder / "file").read_bytes() for folder in folders] == [b"b", b"a"]
        for name in synced:
            Disk().sync_directory(power.root / name, "probe")
        power.cut("nothing")
        assert "".join((folder / "file").read_text() for folder in folders) == left


def test_a_rename_is_one_or_the_other(power: Power) -> None:
    seen = set()
    for seed in range(20):
        power.load()
        Disk().write(power.root / "file", b"old", "probe")
        Disk().sync_directory(power.root, "probe")
        Disk().write(power.root / "draft", b"new", "probe")
        (power.root / "draft").rename(power.root / "file")
        power.cut("scatter", seed)
        seen.add((power.root / "file").read_bytes())
    assert seen == {b"old", b"new"}


def test_the_power_goes_before_an_operation(power: Power) -> None:
    power.load()
    power.cut_at(2)
    (power.root / "before").mkdir()
    with pytest.raises(OSError, match="Input/output error"):
        (power.root / "after").mkdir()
    power.cut("all")
    assert names(power) == ["before"]
