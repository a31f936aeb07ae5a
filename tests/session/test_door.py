"""The door of a session: what may be asked there, and by whom."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys

import pytest

from holdfast.model.errors import Corrupt, HoldfastError, StorageFull, Unsupported
from holdfast.protocol.session_messages import ShutdownMessage, frame
from holdfast.session import Session, door
from holdfast.store import Store


@pytest.fixture
async def opened(store: Store):
    """A session with an open door, and where that is."""
    made = door.Door(store)
    async with Session("work", store=store) as session, made.open(session):
        await session.execute("x = 1")
        yield session, made.address


async def test_a_checkpoint_is_asked_for(opened, store: Store) -> None:
    session, address = opened
    owner = store.owner("session/work")
    assert owner is not None
    assert owner.url == address
    assert door.is_door(address)
    made = await asyncio.to_thread(door.ask, address, "from outside")
    assert store.resolve(made).reason == "from outside"
    assert store.head("session/work").id == made
    # A running cell is waited for.
    running = session.stream("import time; print('begun', flush=True); time.sleep(0.3); x = 2")
    async for _ in running:
        break
    later = await asyncio.to_thread(door.ask, address, "after the cell")
    assert running.result.error is None
    await session.execute("x = 3")
    await session.restore(later)
    assert (await session.execute("x")).value == 2


async def test_what_went_wrong_is_told(opened) -> None:
    session, address = opened

    def full(*args: object, **options: object) -> None:
        raise StorageFull("no room", hint="make some")

    session._history.save = full
    with pytest.raises(StorageFull, match="no room") as told:
        await asyncio.to_thread(door.ask, address, "manual")
    assert told.value.hint == "make some"


async def test_nothing_else_may_be_asked_for(opened) -> None:
    session, address = opened

    def end() -> bytes:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(60)
            line.connect("\0" + address.removeprefix("unix:@"))
            line.sendall(frame(ShutdownMessage()))
            return line.recv(1 << 16)

    assert Corrupt.kind.encode() in await asyncio.to_thread(end)
    assert (await session.execute("x")).value == 1


async def test_other_users_are_not_answered(opened) -> None:
    assert os.geteuid() == 0, "this test needs root, to become somebody else"
    _, address = opened
    knock = (
        "import os, socket, sys\nos.setuid(65534)\nline = socket.socket(socket.AF_UNIX)\n"
        "line.settimeout(60)\nline.connect('\\0' + sys.argv[1])\nprint(line.recv(10))"
    )
    command = [sys.executable, "-I", "-c", knock, address.removeprefix("unix:@")]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "b''\n", done.stderr


async def test_nobody_is_there_any_more(opened, store: Store) -> None:
    session, address = opened
    await session.shutdown()
    with pytest.raises(HoldfastError, match="shut down"):
        await asyncio.to_thread(door.ask, address, "manual")
    with pytest.raises(Unsupported, match="does not answer"):
        door.ask("unix:@holdfast-nobody", "manual")
