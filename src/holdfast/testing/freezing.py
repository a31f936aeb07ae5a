"""The suite of freezing: what every engine does about it, from one freeze to many restores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.model.errors import CaptureFailed, Unsupported
from holdfast.protocol.sandbox_messages import ExecuteRequest
from holdfast.runtime.trial import mounts_below
from holdfast.sandbox import keeping, limits, roots, upper
from holdfast.sandbox.body import Body, Workshop
from holdfast.sandbox.coming import Coming, Moment
from holdfast.sandbox.contract import Engine, Limits
from holdfast.sandbox.languages import plan
from holdfast.sandbox.line import Running
from holdfast.sandbox.process import WINDOW, Process
from holdfast.sandbox.replay import Replay
from holdfast.sandbox.roots import Root
from holdfast.sandbox.start import Start
from holdfast.store.parts.sources import windows
from holdfast.testing.programs import bash, begin, output_after, output_lines, result, run
from holdfast.testing.waiting import until

SMALL = Limits(memory_bytes=512 << 20, processes=64, disk_bytes=32 << 20)
# Says a number and the end of its line at once: what is frozen, or read, is never between them.
COUNTER = """
import sys, time
n = 0
while True:
    n += 1
    sys.stdout.write(f"{n}\\n")
    sys.stdout.flush()
    with open("/root/count", "w") as file:
        file.write(str(n))
    time.sleep(0.02)
"""

# Rewrites a file as fast as it can, each time in a process of its own.
RESTLESS = """
import os
n = 0
while True:
    n += 1
    if os.fork() == 0:
        with open("/root/count", "w") as file:
            file.write(str(n))
        os._exit(0)
    os.wait()
    if n == 20:
        print("ready", flush=True)
"""

# Listens on the loopback, and is connected to itself.
LISTENER = """
import socket
door = socket.create_server(("127.0.0.1", 9000))
own = socket.create_connection(("127.0.0.1", 9000))
other, _ = door.accept()
print("ready", flush=True)
while True:
    link, _ = door.accept()
    link.sendall(b"hello")
    link.close()
"""

# Asks for a socket when it is told to.
WAITS = """
import errno, socket
print("ready", flush=True)
input()
try:
    socket.socket()
except OSError as error:
    print(errno.errorcode[error.errno])
"""

Make = Callable[..., Awaitable[Body]]
Fill = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Frozen:
    """What is left of a sandbox that has ended: its image, its files, and one of its programs."""

    image: Path
    fill: Fill
    epoch: int
    identity: str  # of the program
    end: int  # of what it had said
    balance: tuple[int, int]
    running: list[Running]

    async def restored(self, make: Make, generation: str = "again") -> tuple[Body, Process]:
        """A new one that goes on from here, and its program."""
        body = await make(fill=self.fill, image=self.image)
        program = body.line.adopt(self.identity, Replay(start=self.end), self.balance)
        await body.line.resume(self.epoch, generation, self.running)
        return body, program


async def frozen(body: Body, program: Process, folder: Path, epoch: int = 1) -> Frozen:
    """Freeze a sandbox, keep what is needed, and end it."""
    image = folder / f"image-{epoch}"
    await body.line.quiesce(epoch)
    await body.box.freeze(image)
    fill = packed(body, folder / f"files-{epoch}.tar")
    kept = Frozen(
        image=image,
        fill=fill,
        epoch=epoch,
        identity=program.identity,
        end=program.replay.end,
        balance=program.balance,
        running=body.line.running,
    )
    await body.end()
    return kept


def packed(body: Body, into: Path) -> Fill:
    """Keep the files of a sandbox in which nothing runs; what gives them to another."""
    into.write_bytes(b"".join(upper.pack(body.build.volume.upper)))
    return partial(keeping.unpack_files, into)


def _read_along(coming: Coming) -> dict[str, bytes]:
    """What a thread reads of an image while it is written, by the names of its files."""
    return {
        source.path.name: b"".join(bytes(fetch()) for fetch in windows(source))
        for source in coming.growing()
    }


class FreezingSuite:
    """What an engine must do about freezing. Inherit, and give the fixture `engine`."""

    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError  # whoever is tested says

    @pytest.fixture
    def root(self, tmp_path: Path) -> Root:
        return roots.default(tmp_path / "root")

    @pytest.fixture
    def workshop(self, engine: Engine, tmp_path: Path) -> Workshop:
        return Workshop(engine, tmp_path / "boxes")

    @pytest_asyncio.fixture
    async def make(self, workshop: Workshop, root: Root, tmp_path: Path) -> AsyncIterator[Make]:
        """Makes bodies; afterwards nothing of them is left."""
        made: list[Body] = []

        async def maker(**options: object) -> Body:
            settings: dict[str, object] = {"root": root, "limits": SMALL, **options}
            body = await workshop.make(**settings)  # type: ignore[arg-type]
            made.append(body)
            return body

        yield maker
        for body in made:
            await body.end()
            await body.clear()
        assert mounts_below(tmp_path) == []
        for body in made:
            assert not body.build.folder.exists()
            assert limits.left_by(body.build.name).folders == ()

    async def test_what_it_cannot_bring_back_is_said(self, engine: Engine) -> None:
        exact = engine.capabilities.exact_checkpoint
        assert isinstance(self, ExactSuite) == exact  # all that is promised is tried
        with nullcontext() if exact else pytest.raises(Unsupported):
            engine.capabilities.need("exact_checkpoint", engine.name)

    async def test_a_frozen_sandbox_goes_on(self, make: Make, tmp_path: Path) -> None:
        body = await make()
        counter = await begin(body, "python", "-c", COUNTER)
        await output_after(counter, 0)
        await body.line.quiesce(1)
        await body.box.freeze(tmp_path / "image")
        await body.box.thaw()
        await body.line.resume(1)
        lines = await output_after(counter, counter.replay.end)
        assert [int(line) for line in lines] == list(
            range(int(lines[0]), int(lines[0]) + len(lines))
        )

    async def test_what_is_read_while_it_is_written_is_what_it_is(
        self, make: Make, tmp_path: Path
    ) -> None:
        body = await make()
        hold = "x = bytearray(range(256)) * (64 << 12); print('held', flush=True); input()"
        await output_lines(await begin(body, "python", "-c", hold), 1)
        image, coming = tmp_path / "image", Coming()
        coming.begins(image, body.box.in_order)
        along = asyncio.create_task(asyncio.to_thread(_read_along, coming))
        await body.line.quiesce(1)
        await body.box.freeze(image)
        coming.is_there(Moment({}, tmp_path / "files.tar", image))
        read = await along
        assert sorted(read) == sorted(body.box.in_order)
        for name, found in read.items():
            assert found == (image / name).read_bytes()
        await body.box.thaw()
        await body.line.resume(1)

    async def test_a_failed_freeze_leaves_it_running(
        self, engine: Engine, make: Make, tmp_path: Path
    ) -> None:
        body = await make()
        (tmp_path / "taken").write_text("a file where a folder should be")
        await body.line.quiesce(1)
        if engine.capabilities.exact_checkpoint:
            with pytest.raises(CaptureFailed):
                await body.box.freeze(tmp_path / "taken")
        else:
            await body.box.freeze(tmp_path / "taken")
        await body.line.resume(1)
        assert (await bash(body, "echo alive")).stdout == "alive\n"

    async def test_files_come_back(self, make: Make, tmp_path: Path) -> None:
        body = await make()
        await bash(
            body, "mkdir /root/d; echo kept > /root/d/f; ln -s f /root/d/l; ln /root/d/f /root/h"
        )
        await body.line.quiesce(1)
        await body.box.freeze(tmp_path / "image")
        other = await make(fill=packed(body, tmp_path / "files.tar"))
        assert (
            await bash(other, "cat /root/d/l /root/h; stat -c %h /root/h")
        ).stdout == "kept\nkept\n2\n"


class ExactSuite(FreezingSuite):
    """And an engine whose checkpoints have the processes in them, exactly as they were."""

    async def test_nothing_in_a_frozen_sandbox_moves(self, make: Make, tmp_path: Path) -> None:
        """Also what was begun at that very moment: its files are kept as of one moment."""
        body = await make()
        restless = await begin(body, "python", "-u", "-c", RESTLESS)
        await output_lines(restless, 1)
        for epoch in (1, 2, 3):
            await body.line.quiesce(epoch)
            await body.box.freeze(tmp_path / f"image-{epoch}")
            seen = {b"".join(upper.pack(body.build.volume.upper)) for _ in range(50)}
            await body.box.thaw()
            await body.line.resume(epoch)
            assert len(seen) == 1
        count = body.build.volume.upper / "root/count"
        at = count.stat().st_mtime_ns
        await until(lambda: count.stat().st_mtime_ns > at, "it goes on")

    async def test_processes_come_back_many_times(self, make: Make, tmp_path: Path) -> None:
        body = await make()
        counter = await begin(body, "python", "-c", COUNTER)
        await output_after(counter, 0)
        kept = await frozen(body, counter, tmp_path, epoch=3)
        seen = b"".join(piece.data for piece in counter.replay.after(0)).decode().split()
        for number in range(2):
            copy, again = await kept.restored(make, f"generation {number}")
            lines = await output_after(again, kept.end)
            # Nothing lost, nothing twice: it goes on with the very next number.
            assert int(lines[0]) == int(seen[-1]) + 1
            told = await bash(copy, "cat /run/holdfast/generation; echo mine > /root/mine")
            assert told.stdout == f"generation {number}\n"
            shared = await bash(copy, "ls /root")
            assert shared.stdout.split() == ["count", "mine"]
        # Another has the files of one that came back, and did not.
        last = await frozen(copy, again, tmp_path, epoch=4)
        new = await make(fill=last.fill)
        assert (await bash(new, "cat /root/mine /run/holdfast/generation")).stdout == "mine\n"

    async def test_a_restored_sandbox_can_be_frozen_again(self, make: Make, tmp_path: Path) -> None:
        body = await make()
        counter = await begin(body, "python", "-c", COUNTER)
        await output_after(counter, 0)
        expected, begun = 1, 0
        for epoch in (1, 2, 3):
            kept = await frozen(body, counter, tmp_path, epoch)
            text = b"".join(piece.data for piece in counter.replay.after(begun)).decode()
            numbers = [int(line) for line in text.split()]
            assert numbers == list(range(expected, expected + len(numbers)))
            expected += len(numbers)
            begun = kept.end
            body, counter = await kept.restored(make, f"generation {epoch}")
            await output_after(counter, begun)

    async def test_code_comes_back_and_ends_as_it_would_have(
        self, make: Make, tmp_path: Path
    ) -> None:
        """It may have begun as a copy of an interpreter that is not frozen with it."""
        body = await make()

        def asked(text: str) -> Start:
            request = ExecuteRequest(language="python", code=text)
            return plan(request, body.build.root, body.build.limits, "").start

        for _ in range(3):
            assert (await result(await body.line.start(asked("pass")))).exit.code == 0
            await asyncio.sleep(1.0)
        text = "print(1, flush=True); input(); print(2); raise SystemExit(5)"
        held = await body.line.start(asked(text))
        await output_lines(held, 1)
        copy, again = await (await frozen(body, held, tmp_path)).restored(make)
        await again.write(b"go\n")
        done = await result(again)
        assert (done.exit.code, done.stdout) == (5, "2\n")
        for _ in range(2):
            done = await result(await copy.line.start(asked("print(3)")))
            assert (done.exit.code, done.stdout) == (0, "3\n")
            await asyncio.sleep(1.0)

    async def test_the_loopback_comes_back(self, make: Make, tmp_path: Path) -> None:
        """Who listens is reached again; a connection that was open is allowed to be closed."""
        body = await make()
        held = await begin(body, "python", "-u", "-c", LISTENER)
        await output_lines(held, 1)
        copy, _ = await (await frozen(body, held, tmp_path)).restored(make)
        ask = "import socket\ns = socket.create_connection(('127.0.0.1', 9000), 20)\n"
        ask += "print(s.recv(10).decode())"
        assert (await run(copy, "python", "-c", ask)).stdout == "hello\n"

    async def test_what_was_offline_stays_so(self, make: Make, tmp_path: Path) -> None:
        body = await make()
        held = await begin(body, "python", "-u", "-c", WAITS, offline=True)
        await output_lines(held, 1)
        _, again = await (await frozen(body, held, tmp_path)).restored(make)
        await again.write(b"go\n")
        done = await result(again)
        assert (done.exit.code, done.stdout) == (0, "EAFNOSUPPORT\n")

    async def test_what_nobody_goes_on_with_ends(self, make: Make, tmp_path: Path) -> None:
        """One that speaks, one that waits for a reader, one that waits for input."""
        body = await make()
        counter = await begin(body, "python", "-c", COUNTER)
        await output_after(counter, 0)
        speaker = await begin(body, "bash", "-c", "while echo word; do sleep 0.02; done")
        await output_lines(speaker, 1)
        unread = await begin(body, "cat", "/dev/zero")
        unread.follower = True
        await until(lambda: unread.balance[0] >= WINDOW, "it waits for whoever reads it")
        await body.line.start(Start(call={"call": "write", "path": "/root/new"}))
        kept = await frozen(body, counter, tmp_path)
        assert len(kept.running) == 4
        copy, again = await kept.restored(make)
        await until(lambda: list(copy.line.processes) == [again.identity], "the others have ended")
        await output_after(again, kept.end)
        seen = await bash(copy, "ls /root/new; cat /proc/[0-9]*/comm 2>/dev/null | grep -cx cat")
        assert seen.stdout.strip() == "1"  # that of the question itself
        assert not copy.line.gone.done()
