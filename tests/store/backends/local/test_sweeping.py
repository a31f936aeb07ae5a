"""What the dead left half written goes, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.store.backends.local.sweeping import draft_path, sweep_tmp


def make(path: Path, age: float = 1000) -> Path:
    path.touch()
    then = path.stat().st_mtime - age
    os.utime(path, (then, then))
    return path


def test_a_draft_is_swept_up_when_its_writer_is_dead(tmp_path: Path) -> None:
    living, dead = b"livingly", b"deceased"
    kept = make(draft_path(tmp_path, living))
    gone = [make(draft_path(tmp_path, dead)), make(draft_path(tmp_path))]
    sweep_tmp(tmp_path, {living})
    assert kept.exists()
    assert not any(path.exists() for path in gone)


def test_what_is_young_or_not_a_draft_stays(tmp_path: Path) -> None:
    kept = [make(draft_path(tmp_path), age=0), make(tmp_path / "notes")]
    sweep_tmp(tmp_path, set())
    assert all(path.exists() for path in kept)


def test_no_two_drafts_have_one_name(tmp_path: Path) -> None:
    nonce = bytes(8)
    assert len({draft_path(tmp_path, nonce) for _ in range(50)}) == 50
