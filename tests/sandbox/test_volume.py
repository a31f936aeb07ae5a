"""Volumes: a place of limited size for what one sandbox writes, with its root over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.sandbox import volume


@pytest.mark.parametrize("name", ["a,b", "a:b", "a\\b", "a b", "lowerdir=x,upperdir=y:z"])
def test_any_path_can_be_mounted(tmp_path: Path, name: str) -> None:
    """Some signs mean something in the options of an overlay."""
    lower = tmp_path / name / "lower"
    lower.mkdir(parents=True)
    (lower / "below").write_text("below")
    made = volume.make(tmp_path / name / "volume", 8 << 20)
    try:
        volume.mount_root(made, lower)
        assert (made.merged / "below").read_text() == "below"
        (made.merged / "new").write_text("new")
        assert (made.upper / "new").read_text() == "new"
    finally:
        volume.clear(made)
    assert not made.folder.exists()
