"""The end of a process that is nobody's child here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.oci import watcher


def watch(pid: int, path: Path) -> subprocess.Popen[bytes]:
    fds = [os.pidfd_open(pid), os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)]
    words = [sys.executable, "-I", "-S", watcher.__file__, *map(str, fds), path.name]
    try:
        return subprocess.Popen(words, pass_fds=fds)
    finally:
        for fd in fds:
            os.close(fd)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("read x; exit 0", {"code": 0, "signal": None}),
        ("read x; exit 7", {"code": 7, "signal": None}),
        ("read x; kill -9 $$", {"code": None, "signal": signal.SIGKILL}),
    ],
)
def test_how_it_ended(script: str, told: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "exit.json"
    process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE)
    watching = watch(process.pid, path)
    with pytest.raises(subprocess.TimeoutExpired):
        watching.wait(0.5)
    process.communicate(b"\n")
    assert watching.wait(20) == 0
    assert json.loads(path.read_text()) == told


def test_a_container_that_was_deleted_meanwhile(tmp_path: Path) -> None:
    process = subprocess.Popen(["sh", "-c", "read x"], stdin=subprocess.PIPE)
    path = tmp_path / "gone/exit.json"
    path.parent.mkdir()
    watching = watch(process.pid, path)
    path.parent.rmdir()
    process.communicate(b"\n")
    assert watching.wait(20) == 0
    assert not path.parent.exists()


def test_a_new_container_of_the_same_name_is_told_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(["sh", "-c", "read x"], stdin=subprocess.PIPE)
    folder = tmp_path / "same"
    folder.mkdir()
    watching = watch(process.pid, folder / "exit.json")
    folder.rmdir()  # perhaps before the watcher has begun
    folder.mkdir()
    process.communicate(b"\n")
    assert watching.wait(20) == 0
    assert not list(folder.iterdir())
