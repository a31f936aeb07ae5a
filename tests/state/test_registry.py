"""The registry of directories, and that it never stands in the way."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from holdfast.state import StateManager, directories, registry


def test_directories_are_found_again(tmp_path: Path, holdfast_home: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other, one):
        manager = StateManager("s", directory=directory)
        assert manager.checkpoint_dir not in directories() or directory == one
        manager.checkpoint()
    assert directories() == [one, other]
    assert len(list((holdfast_home / "registry" / "state").iterdir())) == 2
    for path in other.iterdir():
        path.unlink()
    other.rmdir()
    assert directories() == [one]


def test_a_saved_state_and_a_fork_are_noted_too(tmp_path: Path) -> None:
    StateManager("s", directory=tmp_path).save_state()
    assert directories() == [tmp_path]


def test_an_unwritable_registry_stops_no_checkpoint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        StateManager("s", directory=tmp_path / "sessions").checkpoint()
    assert "could not note" in caplog.text
    assert directories() == []


def test_a_damaged_entry_is_ignored(tmp_path: Path, holdfast_home: Path) -> None:
    registry.note(tmp_path)
    (holdfast_home / "registry" / "state" / "bad.json").write_bytes(b"{")
    assert directories() == [tmp_path]


def test_a_home_of_ones_own(tmp_path: Path) -> None:
    registry.note(tmp_path, home=tmp_path / "home")
    assert directories(tmp_path / "home") == [tmp_path]
    assert directories() == []
