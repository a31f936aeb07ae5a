"""Stopped processes are let go, except those that had been stopped before."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
from pathlib import Path

from holdfast.oci.engine import below
from holdfast.oci.standstill import let_go
from holdfast.testing.waiting import eventually

ALIVE, STOPPED = 1, 3


def core(state: int) -> bytes:
    """An image of a process as CRIU writes it: a machine, a thread, and what it was doing."""
    task = bytes([0x08, 0, 0x10, state, 0x18, 0])
    message = bytes([0x08, 1, 0x12, 2, 0x08, 5, 0x1A, len(task), *task])
    return bytes(8) + struct.pack("<I", len(message)) + message


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_all_go_on_but_those_that_did_not(tmp_path: Path) -> None:
    script = "sleep 1000 & sleep 1000 & wait"
    with subprocess.Popen(["sh", "-c", script], start_new_session=True) as first:
        try:
            eventually(lambda: len(list(below(first.pid))) == 2, "all are there")
            waiting, going = below(first.pid)
            everyone = (first.pid, waiting, going)
            for each in everyone:
                os.kill(each, signal.SIGSTOP)
                (tmp_path / f"core-{each}.img").write_bytes(
                    core(STOPPED if each == waiting else ALIVE)
                )
            thread = bytes(8) + struct.pack("<I", 2) + bytes([0x08, 1])
            (tmp_path / "core-1.img").write_bytes(thread)  # says nothing about a process
            eventually(lambda: {state(each) for each in everyone} == {"T"}, "they stand still")
            let_go(first.pid, tmp_path)
            eventually(lambda: state(first.pid) == state(going) == "S", "they go on")
            assert state(waiting) == "T"
        finally:
            os.killpg(first.pid, signal.SIGKILL)
