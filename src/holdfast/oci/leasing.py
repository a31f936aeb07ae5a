"""Asking the node's lease holder: the commands end, and a container's lease must outlive them.

The holder is one process for all containers of a node (`leaseholder`). It is started when it is
first needed and ends when nothing is left to hold. What is asked and answered is one line of JSON.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.model.errors import HoldfastError, LeaseLost, Owned, Unsupported
from holdfast.oci.private import private_folder

SOCKET = "leases.sock"
_START_SECONDS = 30.0
_ANSWER_SECONDS = 60.0  # for a dead owner to be seen as dead, and then some


def hold(run: Path, folder: Path, subject: str, wait: float, environ: Mapping[str, str]) -> int:
    """Hold the lease of a subject as long as a container's folder is there; gives the token. When
    it is held already, the same. Raises Owned when somebody else has it."""
    request = {"hold": subject, "folder": str(folder), "wait": wait}
    answer = _ask(run, request, environ, wait + _ANSWER_SECONDS)
    if "token" in answer:
        return int(answer["token"])
    if "owner" in answer:
        raise Owned(subject, str(answer["owner"]), answer.get("url"))
    if answer.get("kind") == "lease_lost":
        raise LeaseLost(str(answer.get("refused")))
    raise Unsupported(f"no lease of {subject}: {answer.get('refused', 'no answer')}")


def release(run: Path, folder: Path, subject: str) -> None:
    """Give a lease back, so that nobody has to wait for it to run out. Without a holder there is
    none to give back."""
    try:
        _talk(run, {"release": subject, "folder": str(folder)}, _ANSWER_SECONDS)
    except (OSError, ValueError):
        return


def _ask(
    run: Path, request: Mapping[str, object], environ: Mapping[str, str], seconds: float
) -> dict[str, Any]:
    end = time.monotonic() + _START_SECONDS
    started: subprocess.Popen[bytes] | None = None
    while True:
        try:
            return _talk(run, request, seconds)
        except (ConnectionError, FileNotFoundError, ValueError) as error:
            if time.monotonic() > end:
                raise HoldfastError(f"the holder of leases does not answer: {error}") from error
        if started is None or started.poll() is not None:
            # Again, if it has ended: one that was about to end may have kept it from beginning.
            started = _start(run, environ)
        time.sleep(0.02)


def _talk(run: Path, request: Mapping[str, object], seconds: float) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(seconds)
        _connect(peer, run)
        peer.sendall(json.dumps(request).encode() + b"\n")
        with peer.makefile("rb") as answers:
            answer = json.loads(answers.readline() or b"null")
    if not isinstance(answer, dict):
        raise ValueError("it hung up")  # it was about to end: a new one is to be asked
    return answer


def _connect(peer: socket.socket, run: Path) -> None:
    """By its folder's descriptor: an address has 107 bytes at most, and a path may have more."""
    fd = os.open(run, os.O_PATH | os.O_DIRECTORY)
    try:
        peer.connect(f"/proc/self/fd/{fd}/{SOCKET}")
    finally:
        os.close(fd)


def _start(run: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    private_folder(run)
    return subprocess.Popen(
        [sys.executable, "-I", "-W", "ignore", "-m", "holdfast.oci.leaseholder"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=dict(environ),
        cwd="/",
    )
