"""What somebody may do to a session's files, and what a program may do to its state meanwhile."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import BadInput, HoldfastError, NotFound
from holdfast.state import StateManager


class Mute:
    """Cannot tell what it is."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_a_key_that_cannot_tell_what_it_is(kept: dict[str, Any]) -> None:
    manager = StateManager("s", **kept)
    manager.set_state("rows", {Mute(): 1})
    with pytest.raises(BadInput, match=r"rows\..*Mute"):
        manager.checkpoint()
    assert manager.list_checkpoints() == []


def test_links_in_the_directory(tmp_path: Path) -> None:
    real, link, victim = tmp_path / "real", tmp_path / "link", tmp_path / "victim"
    real.mkdir()
    link.symlink_to(real)
    victim.write_text("mine")
    (real / "saved.json").symlink_to(victim)
    (real / ".locked.lock").symlink_to(victim)
    manager = StateManager("s", directory=link)
    manager.set_state("n", 1)
    assert manager.checkpoint().path == link / manager.list_checkpoints()[0].path.name  # type: ignore[union-attr]
    assert len(list(real.glob("s_checkpoint_*.json"))) == 1
    saved = StateManager("saved", directory=real)
    saved.set_state("n", 2)
    saved.save_state()
    assert not (real / "saved.json").is_symlink()
    assert StateManager.load("saved", directory=real).get_state("n") == 2
    with pytest.raises(HoldfastError, match="symbolic links"):
        StateManager("locked", directory=real).checkpoint()
    assert victim.read_text() == "mine"


def test_a_directory_that_is_taken_away(tmp_path: Path) -> None:
    manager = StateManager("s", directory=tmp_path / "states")
    manager.set_state("n", 1)
    (tmp_path / "states").rmdir()
    with pytest.raises(NotFound, match="states"):
        manager.checkpoint()
    (tmp_path / "states").mkdir()
    manager.checkpoint()
    assert StateManager.load("s", directory=tmp_path / "states").get_state("n") == 1


def test_a_state_that_changes_while_it_is_saved(kept: dict[str, Any]) -> None:
    manager = StateManager("s", checkpoint_limit=3, **kept)
    state = manager.state_data
    state["rows"] = [{"n": n, "text": "x" * 100} for n in range(50)]
    state["nested"] = {"a": {"b": [{"c": 1}] * 10}}
    stop = threading.Event()

    def change() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            state["rows"].append({"n": n, "text": "y" * 100})
            state["rows"].pop(0)
            state["rows"][3][f"k{n % 7}"] = n
            state["rows"][3].pop(f"k{(n + 3) % 7}", None)
            state["nested"]["a"][f"z{n % 5}"] = {"q": [n]}
            state["nested"]["a"].pop(f"z{(n + 2) % 5}", None)

    threads = [threading.Thread(target=change) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        with manager.autosave(0.01):
            until = time.monotonic() + 1
            made = 0
            while time.monotonic() < until or made < 3:
                manager.checkpoint()
                made += 1
                loaded = StateManager.load("s", **kept).state_data
                assert len(loaded["rows"]) in range(48, 54)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    manager.checkpoint()
    assert StateManager.load("s", **kept).state_data == state
