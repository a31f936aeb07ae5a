"""Several processes on one session, and processes that die at any moment."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.state import StateManager

WRITER = """
import sys
from holdfast.state import StateManager
directory, who, steps, limit, size = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
manager = StateManager("s", directory=directory, checkpoint_limit=limit)
manager.set_state("filling", "x" * size)
print("ready", flush=True)
sys.stdin.readline()
for step in range(steps):
    manager.set_state("who", who)
    manager.set_state("step", step)
    if step % 3 == 2:
        manager.save_state()
    made = manager.checkpoint(f"{who} {step}")
    print(step, made.id, flush=True)
"""


def writer(
    directory: Path, who: str, steps: int, limit: int, size: int = 0
) -> subprocess.Popen[str]:
    """A process that makes checkpoints once it is told to, and says which are durable."""
    command = [sys.executable, "-c", WRITER, str(directory), who, *map(str, (steps, limit, size))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def go(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()


def acknowledged(process: subprocess.Popen[str]) -> list[tuple[int, str]]:
    """The steps that were said to be durable, once the process has ended."""
    output, _ = process.communicate(timeout=60)
    lines = [line.split() for line in output.splitlines() if line.count(" ") == 1]
    return [(int(step), stamp) for step, stamp in lines if len(stamp) == 22]


def test_processes_on_one_session_lose_nothing(tmp_path: Path) -> None:
    processes = [writer(tmp_path, who, steps=25, limit=1000) for who in "abc"]
    go(*processes)
    stamps = [stamp for each in processes for _, stamp in acknowledged(each)]
    assert [each.returncode for each in processes] == [0, 0, 0]
    assert len(stamps) == len(set(stamps)) == 75
    manager = StateManager("s", directory=tmp_path)
    found = manager.list_checkpoints()
    assert sorted(each.id for each in found) == sorted(stamps)
    assert {each.reason for each in found} == {f"{who} {n}" for who in "abc" for n in range(25)}
    for each in found:
        assert each.path
        document = json.loads(each.path.read_text())
        assert each.reason == f"{document['state_info']['who']} {document['state_info']['step']}"


def test_processes_on_one_session_keep_to_the_limit(tmp_path: Path) -> None:
    processes = [writer(tmp_path, who, steps=15, limit=4) for who in "ab"]
    go(*processes)
    stamps = sorted(stamp for each in processes for _, stamp in acknowledged(each))
    assert len(stamps) == 30
    found = StateManager("s", directory=tmp_path).list_checkpoints()
    assert [each.id for each in reversed(found)] == stamps[-4:]


@pytest.mark.parametrize("rounds", [12, pytest.param(300, marks=pytest.mark.soak)])
def test_killed_at_any_moment_nothing_saved_is_lost(tmp_path: Path, rounds: int) -> None:
    chance = random.Random(4)
    interrupted = 0
    for round_number in range(rounds):
        directory = tmp_path / str(round_number)
        process = writer(directory, "w", steps=100_000, limit=3, size=200_000)
        go(process)
        time.sleep(chance.uniform(0.0, 0.12))
        os.kill(process.pid, signal.SIGKILL)
        durable = acknowledged(process)
        assert process.returncode == -signal.SIGKILL
        interrupted += bool(list(directory.glob(".*.tmp")))
        if not durable:
            continue
        found = StateManager("s", directory=directory).list_checkpoints()
        # At most the one that was being made is there beyond the limit.
        assert min(3, len(durable)) <= len(found) <= 4
        assert {stamp for _, stamp in durable[-2:]} <= {each.id for each in found}
        # Readable to the last byte, with the right content; no unfinished file is counted.
        for path in directory.glob("s*.json"):
            assert len(json.loads(path.read_text())["state_info"]["filling"]) == 200_000
        loaded = StateManager.load("s", directory=directory)
        assert loaded.state_data["step"] >= durable[-1][0]
        loaded.checkpoint()
        assert not list(directory.glob(".*.tmp"))
    print(f"{interrupted} of {rounds} rounds were killed while a file was being written")


def test_a_fork_of_the_process_keeps_its_own_line(tmp_path: Path) -> None:
    code = """
import os, sys
from holdfast.state import StateManager
manager = StateManager("s", directory=sys.argv[1])
manager.set_state("step", 0)
manager.checkpoint()
child = os.fork()
for step in range(5):
    manager.set_state("step", [bool(child), step])
    manager.checkpoint_limit = 100
    manager.checkpoint()
if child:
    assert os.waitpid(child, 0)[1] == 0
manager.rollback()
assert manager.state_data["step"] == [bool(child), 3], manager.state_data
"""
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)
    assert len(StateManager("s", directory=tmp_path).list_checkpoints()) == 13


def test_the_order_in_which_the_disk_is_told(tmp_path: Path) -> None:
    """Synced, then named, then the name synced, and only then the oldest removed."""
    code = """
import sys
from holdfast.state import StateManager
manager = StateManager("s", directory=sys.argv[1], checkpoint_limit=1)
manager.checkpoint()
print("second", flush=True)
manager.checkpoint()
"""
    trace = tmp_path / "trace"
    calls = "trace=openat,fsync,fdatasync,rename,unlink,write"
    subprocess.run(
        [
            "strace",
            "-f",
            "-y",
            "-e",
            calls,
            "-o",
            trace,
            sys.executable,
            "-c",
            code,
            tmp_path / "d",
        ],
        check=True,
    )
    text = trace.read_text().split('"second')[1]
    order = re.findall(r"(fdatasync|fsync|rename|unlink)\((?:\d+<)?([^)>,]*)", text)
    kinds = [(call, Path(path.strip('"')).suffix) for call, path in order]
    assert kinds == [
        ("fdatasync", ".tmp"),
        ("rename", ".tmp"),
        ("fsync", ""),
        ("unlink", ".json"),
    ]
