"""The link to another process: frames and files arrive as they were when they were sent."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from holdfast.session.link import Link


@pytest.fixture
async def pair():
    """A link that nobody reads from, and the other end of it."""
    near, far = socket.socketpair()
    link = Link(near, lambda payload: None, lambda why: None)
    yield link, far
    link.close()
    far.close()


def fill(link: Link) -> None:
    """Send until a frame has to wait."""
    while not link._outgoing:
        link.send(b"x" * 65536)


async def received(far: socket.socket) -> list[int]:
    """The files that come with all that is sent."""
    far.setblocking(False)
    found: list[int] = []
    loop = asyncio.get_running_loop()
    while True:
        ready = loop.create_future()
        loop.add_reader(far, lambda ready=ready: ready.done() or ready.set_result(None))
        await asyncio.wait_for(ready, 10)
        loop.remove_reader(far)
        data, files, _, _ = socket.recv_fds(far, 1 << 20, 8)
        found += files
        if data.endswith(b"end"):
            return found


async def test_waiting_frame_keeps_its_own_file(pair, tmp_path: Path) -> None:
    """The number of a closed file means another one soon; the frame still brings the first."""
    link, far = pair
    fill(link)
    (tmp_path / "meant").write_text("meant")
    (tmp_path / "other").write_text("other")
    file = os.open(tmp_path / "meant", os.O_RDONLY)
    link.send(b"end", [file])
    os.close(file)
    other = os.open(tmp_path / "other", os.O_RDONLY)
    assert other == file
    (came,) = await received(far)
    assert os.read(came, 10) == b"meant"
    os.close(came)
    os.close(other)


async def test_unsent_files_are_closed(pair) -> None:
    link, _ = pair
    fill(link)
    before = set(os.listdir("/proc/self/fd"))
    link.send(b"end", [0, 1])
    assert len(set(os.listdir("/proc/self/fd")) - before) == 2
    link.close()
    assert set(os.listdir("/proc/self/fd")) <= before
