"""Pipes and pairs of sockets of which the session has both ends: a checkpoint leaves them as they
are, and they come back with what was on its way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.session.awkward import LARGE

from holdfast import sync
from holdfast.session import Session
from holdfast.store import open_store

PIPES = """
import os, socket, stat
def pipe(*modes, **options):
    return [os.fdopen(fd, mode, **options) for fd, mode in zip(os.pipe(), modes)]
r, w = pipe('r', 'w')                     # text, in all three places
_ = w.write('one\\ntwé\\n'), w.flush(), r.readline(), w.write('three')
br, bw = pipe('rb', 'wb')
_ = bw.write(b'0123456789'), bw.flush(), br.read(3)
fr, fw = pipe('rb', 'wb', buffering=0)    # full to the brim, and nobody waits
os.set_blocking(fw.fileno(), False)
_ = fw.write(b'x' * 40_000), fw.write(b'y' * 100_000)
er, ew = pipe('rb', 'wb')                 # the writer has gone
_ = ew.write(b'last'), ew.close()
gr, gw = pipe('rb', 'wb', buffering=0)    # the reader has
gr.close()
half, _w = pipe('r', 'wb')
_ = _w.write('½é'.encode()[:3]), _w.flush(), half.read(1)
both = [*pipe('rb', 'wb', buffering=0), {}]
both[2]['again'] = os.fdopen(os.dup(both[1].fileno()), 'wb', buffering=0)
"""
READ = """
seen = [r.readline(), (w.close(), r.read())[1], br.read(7), fr.read(40_000) == b'x' * 40_000,
        set(fr.read(100_000)), fw.write(b'z'), fr.read(9), er.read()]
try: gw.write(b'?')
except BrokenPipeError: seen.append('broken')
_ = _w.write('é'.encode()[1:]), _w.close()
seen.append(half.read())
_ = both[1].write(b'a'), both[1].close(), both[2]['again'].write(b'b'), both[2]['again'].close()
seen += [both[0].read(9), both[0].read(9)]
seen
"""
SEEN = ["twé\n", "three", b"3456789", True, {ord("y")}, 1, b"z", b"last", "broken", "é", b"ab", b""]

SOCKETS = """
import socket
a, b = socket.socketpair()
for text in (b'1', b'22', b'333' * 20_000): a.sendall(text)
b.send(b'back')
b.setblocking(False)
c, d = socket.socketpair()                # one end was closed, with something to read
c.send(b'left'); c.close()
e, f = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
g, h = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
h.shutdown(socket.SHUT_RD)
"""
TALK = """
seen = [len(b.recv(1 << 20)), a.recv(9), b.getblocking(), a.getblocking(), d.recv(9), d.recv(9),
        (e.send(b'm'), e.send(b'n'), f.recv(9), f.recv(9))[2:], (h.send(b'o'), g.recv(9))[1]]
try: g.send(b'?')
except BrokenPipeError: seen.append('broken')
seen
"""
SAID = [60003, b"back", False, True, b"left", b"", (b"m", b"n"), b"o", "broken"]

OPEN = """
import gc
gc.collect()
paths = [entry.path for entry in os.scandir('/proc/self/fd')]
modes = [os.stat(path).st_mode for path in paths if os.path.exists(path)]
sum(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes)
"""

# The capture of this one waits until there is a file.
SLOW = """
import os, time
class Slow:
    def __reduce__(self):
        while not os.path.exists({gate!r}): time.sleep(0.01)
        return Slow, ()
slow = Slow()
"""


@pytest.mark.parametrize("first", ["", LARGE], ids=["in place", "in a copy"])
def test_all_that_was_on_its_way(first: str) -> None:
    store = open_store("memory://")
    with sync.Session("pairs", store=store) as session:
        session.execute(PIPES + SOCKETS + first, check=True)
        before = session.execute(OPEN).value
        session.checkpoint()
        made = session.checkpoint()
        names = [*"rwabdefgh", "br", "bw", "fr", "fw", "er", "gw", "half", "both"]
        assert {made.report[name].outcome for name in names} == {"rebuilt"}, made.report
        assert session.execute(OPEN).value == before
        # The session did not notice.
        assert session.execute(READ, check=True).value == SEEN
        assert session.execute(TALK, check=True).value == SAID
    with sync.Session.resume("pairs", store=store) as session:
        assert session.execute(READ, check=True).value == SEEN
        assert session.execute(TALK, check=True).value == SAID
        session.restore(made)
        after = session.execute(OPEN).value
        session.restore(made)
        assert session.execute(OPEN).value == after
        assert session.execute(READ, check=True).value == SEEN


async def test_a_copy_has_what_was_there_when_it_was_made(session: Session, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await session.execute(
        PIPES + SOCKETS + LARGE + SLOW.format(gate=str(gate)),
        check=True,
    )
    task = asyncio.create_task(session.checkpoint())
    await asyncio.sleep(0)
    for code, expected in ((READ, SEEN), (TALK, SAID)):
        assert (await session.execute(code, check=True)).value == expected
    assert not task.done()
    gate.touch()
    await session.restore(await task)
    for code, expected in ((READ, SEEN), (TALK, SAID)):
        assert (await session.execute(code, check=True)).value == expected


async def test_what_is_not_brought_back_says_why(session: Session, tmp_path: Path) -> None:
    fifo = str(tmp_path / "fifo")
    await session.execute(
        "import array, os, socket\nr, number = os.pipe()\nnumbered = os.fdopen(r)\n"
        f"os.mkfifo({fifo!r})\nnamed = os.fdopen(os.open({fifo!r}, os.O_RDWR), 'rb', buffering=0)\n"
        "wide, wide_w = [os.fdopen(fd, m, encoding='utf-16') for fd, m in zip(os.pipe(), 'rw')]\n"
        "packets = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n_ = packets[0].send(b'')\n"
        "passing = socket.socketpair()\n_ = passing[0].sendmsg([b'x'], [(socket.SOL_SOCKET,"
        " socket.SCM_RIGHTS, array.array('i', [r]))])\n"
        "hidden = (lambda pair: (pair[0], (_ for _ in pair for _ in pair)))(socket.socketpair())\n"
        "_ = next(hidden[1])",
        check=True,
    )
    report = (await session.checkpoint()).report
    reasons = {
        "numbered": "its other end is not in a variable",
        "named": "a pipe with a name is not brought back",
        "wide": "utf-16 cannot be told",
        "wide_w": "utf-16 cannot be told",
        "packets": "messages wait in it",
        "passing": "more than bytes",
        "hidden": "its other end is not in a variable",
    }
    for name, reason in reasons.items():
        assert report[name].outcome == "placeholder"
        assert reason in report[name].reason, report[name]
    # What waits there still does.
    told = "[packets[1].recv(9), passing[1].recvmsg(9, 100)[0], hidden[0].send(b'x')]"
    assert (await session.execute(told, check=True)).value == [b"", b"x", 1]


async def test_who_is_at_the_other_end_does_not_wait_for_a_copy(
    session: Session, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        address = server.sockets[0].getsockname()
        await session.execute(SLOW.format(gate=str(gate)) + LARGE, check=True)
        await session.execute(
            f"import socket\nline = socket.create_connection({address!r})", check=True
        )
        task = asyncio.create_task(session.checkpoint())
        await asyncio.sleep(0)
        await session.execute("line.close()", check=True)
        await asyncio.wait_for(closed.wait(), 60)
        assert not task.done()
        gate.touch()
        report = (await task).report
    assert "connected to 127.0.0.1" in report["line"].reason
