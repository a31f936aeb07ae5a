"""Connections: how slowly a request may come, and how many there may be."""

from __future__ import annotations

import contextlib
import hashlib
import io
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.server.conftest import ANSWER, PATIENCE
from websockets.sync.client import connect

from holdfast.server.listen import Shares
from holdfast.store import open_store

SERVE = (
    "sys.exit(main(['serve', '--port', '0', '--auth', 'none', '--engine', 'process',"
    " '--pool', '0']))"
)


@contextlib.contextmanager
def serving(code: str, home: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server whose process ran some code first; its address."""
    script = f"import resource, sys\nfrom holdfast.cli.main import main\n{code}\n{SERVE}"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOLDFAST_HOME": str(home)},
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1], process
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


# What takes 20 s for people takes half of one here.
QUICK = (
    "from holdfast.server import listen\n"
    "listen.REQUEST_SECONDS, listen.BODY_BYTES_A_SECOND = 0.5, 2000"
)


@pytest.fixture
def archive() -> bytes:
    with open_store("memory://") as store, store.draft("state/slow", reason="test") as draft:
        draft.put("content", hashlib.shake_256(b"noise").digest(60_000))
        made = draft.commit()
        out = io.BytesIO()
        store.export(made.id, out)
    return out.getvalue()


def test_a_slow_upload_is_taken(archive: bytes, holdfast_home: Path) -> None:
    apart = threading.Event()

    def slowly() -> Iterator[bytes]:
        for start in range(0, len(archive), 5_000):
            apart.wait(0.2)
            yield archive[start : start + 5_000]

    with serving(QUICK, holdfast_home) as (address, _):
        answer = httpx.post(f"{address}/v1/import", content=slowly(), timeout=60)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["imported"]) == 1


def test_a_trickle_is_cut_off(archive: bytes, holdfast_home: Path) -> None:
    apart = threading.Event()

    def trickle() -> Iterator[bytes]:
        for start in range(len(archive)):
            apart.wait(0.05)
            yield archive[start : start + 1]

    with serving(QUICK, holdfast_home) as (address, _), pytest.raises(httpx.TransportError):
        httpx.post(f"{address}/v1/import", content=trickle(), timeout=60)


def ask(connection: socket.socket, host: str) -> bytes:
    with contextlib.suppress(OSError):
        connection.sendall(f"GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1000)
    return b""


def test_one_address_gets_only_its_share(holdfast_home: Path) -> None:
    few = "resource.setrlimit(resource.RLIMIT_NOFILE, (128, 256))"  # 128 connections, 64 of one
    with serving(few, holdfast_home) as (address, _), contextlib.ExitStack() as held:
        host, _, port = address.removeprefix("http://").partition(":")
        place = (host, int(port))
        for _ in range(64):
            held.enter_context(socket.create_connection(place, ANSWER))
        with socket.create_connection(place, ANSWER) as more:
            assert more.recv(1000).startswith(b"HTTP/1.1 503 ")
        with socket.create_connection(place, ANSWER, ("127.0.0.2", 0)) as other:
            assert ask(other, host).startswith(b"HTTP/1.1 200 ")
        held.close()  # and then there is room again, and descriptors for what a sandbox needs
        answer = httpx.post(f"{address}/execute", content=b"print(6 * 7)", timeout=ANSWER)
        assert answer.text == "42\n"


def test_the_limit_of_open_files_is_raised(holdfast_home: Path) -> None:
    low = "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 2048))"
    with serving(low, holdfast_home) as (address, process), contextlib.ExitStack() as held:
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        (line,) = [each for each in limits.splitlines() if each.startswith("Max open files")]
        assert line.split()[3:5] == ["2048", "2048"]
        host, _, port = address.removeprefix("http://").partition(":")
        for _ in range(400):
            held.enter_context(socket.create_connection((host, int(port)), ANSWER))
        with socket.create_connection((host, int(port)), ANSWER) as more:
            assert ask(more, host).startswith(b"HTTP/1.1 200 ")


def test_websockets_give_their_share_back(holdfast_home: Path) -> None:
    few = "resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))"  # 64 connections, 32 of one
    with serving(few, holdfast_home) as (address, _):
        for _ in range(70):
            with connect(f"{address.replace('http', 'ws', 1)}/v1/events") as watching:
                watching.recv(ANSWER)
        assert httpx.get(f"{address}/status", timeout=ANSWER).status_code == 200


class Transport:
    """A transport that knows where it comes from, and no more."""

    def __init__(self, peer: object) -> None:
        self._peer = peer

    def get_extra_info(self, name: str) -> object:
        return self._peer if name == "peername" else None


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (("10.0.0.1", 1), ("10.0.0.1", 2), True),
        (("10.0.0.1", 1), ("10.0.0.2", 1), False),
        (("2001:db8::1", 1, 0, 0), ("2001:db8::2", 1, 0, 0), True),
        (("2001:db8::1", 1, 0, 0), ("2001:db8:0:1::1", 1, 0, 0), False),
        (("::ffff:10.0.0.1", 1, 0, 0), ("10.0.0.1", 1), True),
        (("fe80::1%eth0", 1, 0, 2), ("fe80::2", 1, 0, 2), True),
        (None, None, True),
    ],
)
def test_shares_count_by_address(one: object, other: object, alike: bool) -> None:
    shares = Shares(2)
    first, second, third = Transport(one), Transport(other), Transport(one)
    assert shares.enter(first)  # type: ignore[arg-type]
    assert shares.enter(second) is not alike  # type: ignore[arg-type]
    for each in (first, first, second, third, None):
        shares.leave(each)  # type: ignore[arg-type]
    assert shares.enter(third)  # type: ignore[arg-type]
