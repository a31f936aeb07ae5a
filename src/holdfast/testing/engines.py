"""The suite that every engine passes: what is declared works, and the rest says `unsupported`.

class TestMine(EngineSuite):
    @pytest.fixture
    def engine(self) -> Engine: ...
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.model.errors import CaptureFailed, HoldfastError, NotFound, Unsupported
from holdfast.runtime.trial import mounts_below
from holdfast.sandbox import keeping, limits, roots, upper
from holdfast.sandbox.agent import USER
from holdfast.sandbox.body import Body, Workshop
from holdfast.sandbox.contract import Engine, Limits
from holdfast.sandbox.languages import ceilings
from holdfast.sandbox.line import AgentLine, Exit, Process, Start
from holdfast.sandbox.replay import Replay
from holdfast.sandbox.roots import Root

SMALL = Limits(memory_bytes=512 << 20, processes=64, disk_bytes=32 << 20)
COUNTER = """
import time
n = 0
while True:
    n += 1
    print(n, flush=True)
    with open("/root/count", "w") as file:
        file.write(str(n))
    time.sleep(0.02)
"""

FORKS = """
import os, signal
made = []
try:
    while len(made) < 1000:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        made.append(pid)
except BlockingIOError:
    pass
print(len(made))
for pid in made:
    os.kill(pid, 9)
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

Make = Callable[..., Awaitable[Body]]


@dataclass(slots=True)
class Run:
    """What came out of a program."""

    exit: Exit
    stdout: str
    stderr: str


def environment(root: Root) -> dict[str, str]:
    return {"PATH": root.path, "HOME": "/root"}


async def begin(body: Body, *argv: str, **more: object) -> Process:
    root = body.build.root
    words = [*root.python, *argv[1:]] if argv[0] == "python" else list(argv)
    start = Start(
        argv=words,
        env=environment(root),
        limits=ceilings(body.build.limits),
        **more,  # type: ignore[arg-type]
    )
    return await body.line.start(start)


async def result(process: Process) -> Run:
    how = await asyncio.wait_for(process.wait(), 60)
    texts = {"stdout": "", "stderr": ""}
    for piece in process.replay.after(0):
        texts[piece.stream] += piece.data.decode("utf-8", "replace")
    return Run(how, texts["stdout"], texts["stderr"])


async def run(body: Body, *argv: str, **more: object) -> Run:
    return await result(await begin(body, *argv, **more))


async def bash(body: Body, script: str) -> Run:
    return await run(body, "bash", "-c", script)


async def output_after(process: Process, offset: int) -> list[str]:
    """Lines that come behind an offset, once there are some."""
    for _ in range(500):
        text = b"".join(piece.data for piece in process.replay.after(offset)).decode()
        lines = text.splitlines()
        if len(lines) >= 5:
            return lines[:-1]
        await asyncio.sleep(0.02)
    raise AssertionError("it does not go on")


async def output_lines(process: Process, count: int) -> None:
    """Wait until so many lines have come."""
    async with asyncio.timeout(60):
        while b"".join(each.data for each in process.replay.after(0)).count(b"\n") < count:
            await process.changed()


class FreezingSuite:
    """What an engine must do about freezing. Inherit, and give the fixture `engine`."""

    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError  # whoever is tested says

    @pytest.fixture
    def root(self, tmp_path: Path) -> Root:
        return roots.default(tmp_path / "root")

    @pytest_asyncio.fixture
    async def make(self, engine: Engine, root: Root, tmp_path: Path) -> AsyncIterator[Make]:
        """Makes bodies; afterwards nothing of them is left."""
        made: list[Body] = []

        async def maker(**options: object) -> Body:
            settings: dict[str, object] = {"root": root, "limits": SMALL, **options}
            body = await Workshop(engine, tmp_path / "boxes").make(**settings)  # type: ignore[arg-type]
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

    async def test_a_frozen_sandbox_goes_on(self, make: Make, tmp_path: Path) -> None:
        body = await make()
        counter = await begin(body, "python", "-u", "-c", COUNTER)
        await output_after(counter, 0)
        await body.line.quiesce(1)
        await body.box.freeze(tmp_path / "image")
        await body.box.thaw()
        await body.line.resume(1)
        lines = await output_after(counter, counter.replay.end)
        assert [int(line) for line in lines] == list(
            range(int(lines[0]), int(lines[0]) + len(lines))
        )

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
        packed = tmp_path / "files.tar"
        packed.write_bytes(b"".join(upper.pack(body.build.volume.upper)))

        def fill(into: Path) -> None:
            with open(packed, "rb") as file:
                upper.unpack(file, into)

        other = await make(fill=fill)
        assert (
            await bash(other, "cat /root/d/l /root/h; stat -c %h /root/h")
        ).stdout == "kept\nkept\n2\n"

    async def test_processes_come_back_many_times(
        self, engine: Engine, make: Make, tmp_path: Path
    ) -> None:
        if not engine.capabilities.exact_checkpoint:
            with pytest.raises(Unsupported):
                engine.capabilities.need("exact_checkpoint", engine.name)
            return
        body = await make()
        counter = await begin(body, "python", "-u", "-c", COUNTER)
        await output_after(counter, 0)
        await body.line.quiesce(3)
        await body.box.freeze(tmp_path / "image")
        packed = tmp_path / "files.tar"
        packed.write_bytes(b"".join(upper.pack(body.build.volume.upper)))
        end, balance = counter.replay.end, counter.balance
        seen = b"".join(piece.data for piece in counter.replay.after(0)).decode().split()
        await body.end()

        def fill(into: Path) -> None:
            with open(packed, "rb") as file:
                upper.unpack(file, into)

        for number in range(2):
            copy = await make(fill=fill, image=tmp_path / "image")
            again = _adopted(copy.line, counter.identity, end, balance)
            await copy.line.resume(3, f"generation {number}")
            lines = await output_after(again, end)
            # Nothing lost, nothing twice: it goes on with the very next number.
            assert int(lines[0]) == int(seen[-1]) + 1
            told = await bash(copy, "cat /run/holdfast/generation; echo mine > /root/mine")
            assert told.stdout == f"generation {number}\n"
            shared = await bash(copy, "ls /root")
            assert shared.stdout.split() == ["count", "mine"]

    async def test_a_restored_sandbox_can_be_frozen_again(
        self, engine: Engine, make: Make, tmp_path: Path
    ) -> None:
        if not engine.capabilities.exact_checkpoint:
            return  # nothing of its processes comes back
        body = await make()
        counter = await begin(body, "python", "-u", "-c", COUNTER)
        await output_after(counter, 0)
        expected, begun = 1, 0
        for epoch in (1, 2, 3):
            await body.line.quiesce(epoch)
            image, packed = tmp_path / f"image-{epoch}", tmp_path / f"files-{epoch}.tar"
            await body.box.freeze(image)
            packed.write_bytes(b"".join(upper.pack(body.build.volume.upper)))
            text = b"".join(piece.data for piece in counter.replay.after(begun)).decode()
            numbers = [int(line) for line in text.split()]
            assert numbers == list(range(expected, expected + len(numbers)))
            expected += len(numbers)
            begun, balance = counter.replay.end, counter.balance
            await body.end()
            body = await make(fill=partial(keeping.unpack_files, packed), image=image)
            counter = _adopted(body.line, counter.identity, begun, balance)
            await body.line.resume(epoch, f"generation {epoch}")
            await output_after(counter, begun)

    async def test_the_loopback_comes_back(
        self, engine: Engine, make: Make, tmp_path: Path
    ) -> None:
        """Who listens is reached again; a connection that was open is allowed to be closed."""
        if not engine.capabilities.exact_checkpoint:
            return  # nothing of its processes comes back
        body = await make()
        held = await begin(body, "python", "-u", "-c", LISTENER)
        await output_lines(held, 1)
        await body.line.quiesce(1)
        await body.box.freeze(tmp_path / "image")
        packed = tmp_path / "files.tar"
        packed.write_bytes(b"".join(upper.pack(body.build.volume.upper)))
        end, balance = held.replay.end, held.balance
        await body.end()
        copy = await make(fill=partial(keeping.unpack_files, packed), image=tmp_path / "image")
        _adopted(copy.line, held.identity, end, balance)
        await copy.line.resume(1, "again")
        ask = "import socket\ns = socket.create_connection(('127.0.0.1', 9000), 20)\n"
        ask += "print(s.recv(10).decode())"
        assert (await run(copy, "python", "-c", ask)).stdout == "hello\n"


class EngineSuite(FreezingSuite):
    """All that an engine must do. Inherit, and give the fixture `engine`."""

    # -- programs

    async def test_a_program_runs_to_its_end(self, make: Make) -> None:
        body = await make()
        done = await bash(body, "echo out; echo err >&2; exit 7")
        assert (done.exit.code, done.stdout, done.stderr) == (7, "out\n", "err\n")
        assert (await run(body, "python", "-c", "print(6 * 7)")).stdout == "42\n"

    async def test_environment_and_folder(self, make: Make) -> None:
        body = await make()
        process = await body.line.start(
            Start(argv=["/bin/sh", "-c", "pwd; echo $GREETING"], env={"GREETING": "hi"}, cwd="/tmp")
        )
        assert (await result(process)).stdout == "/tmp\nhi\n"

    async def test_what_cannot_be_run_is_told(self, make: Make) -> None:
        body = await make()
        with pytest.raises(NotFound, match="no-such-program"):
            await begin(body, "no-such-program")
        with pytest.raises(HoldfastError):
            await body.line.start(Start(argv=["true"], env=environment(body.build.root), cwd="/no"))
        assert (await bash(body, "echo still here")).stdout == "still here\n"

    async def test_input_and_its_end(self, make: Make) -> None:
        body = await make()
        process = await begin(body, "cat")
        text = b"line\n" * 200_000  # more than any pipe holds
        giving = asyncio.create_task(process.write(text))
        await asyncio.wait_for(giving, 30)
        process.end_input()
        done = await result(process)
        assert done.exit == Exit(code=0)
        assert process.replay.end == len(text)

    async def test_several_at_once(self, make: Make) -> None:
        body = await make()
        started = [await begin(body, "bash", "-c", f"sleep 0.1; echo {n}") for n in range(5)]
        assert [(await result(each)).stdout for each in started] == [f"{n}\n" for n in range(5)]

    async def test_killing_takes_the_whole_group(self, make: Make) -> None:
        body = await make()
        process = await begin(body, "bash", "-c", "sleep 1000 & echo $!; wait")
        while not process.replay.end:
            await process.changed()
        process.kill()
        done = await result(process)
        assert done.exit == Exit(signal=9)
        await asyncio.sleep(0.1)
        assert (await bash(body, f"kill -0 {done.stdout.strip()}")).exit.code != 0

    async def test_orphans_are_reaped(self, make: Make) -> None:
        body = await make()
        await bash(body, "for i in 1 2 3 4 5; do (sleep 0.05 &) ; done")
        await asyncio.sleep(0.5)
        seen = await bash(body, "cat /proc/[0-9]*/stat | grep -c ') Z '")
        assert seen.stdout.strip() == "0"

    async def test_a_terminal(self, engine: Engine, make: Make) -> None:
        if not engine.capabilities.pty:
            with pytest.raises(Unsupported):
                engine.capabilities.need("pty", engine.name)
            return
        body = await make()
        script = "test -t 0 && stty size; read line; echo got $line; stty size"
        process = await begin(body, "bash", "-c", script, size=(30, 90))
        while b"30 90" not in b"".join(piece.data for piece in process.replay.after(0)):
            await process.changed()
        process.resize(40, 120)
        await process.write(b"word\n")
        done = await result(process)
        assert "got word" in done.stdout
        assert done.stdout.endswith("40 120\r\n")

    async def test_output_waits_for_whoever_reads_it(self, make: Make) -> None:
        body = await make()
        process = await begin(body, "head", "-c", "3000000", "/dev/zero")
        process.follower = True
        await asyncio.sleep(0.5)
        held = process.replay.end
        assert 0 < held < 1_000_000
        process.consumed()
        while process.replay.end < 3_000_000:
            await asyncio.wait_for(process.changed(), 30)
            process.consumed()
        assert (await process.wait()).code == 0
        assert process.replay.end == 3_000_000

    # -- walls

    async def test_programs_have_no_power(self, make: Make) -> None:
        body = await make()
        seen = await bash(
            body, "id -u; grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status; ls /proc/self/fd"
        )
        lines = seen.stdout.split()
        assert lines[0] == str(USER if os.geteuid() == 0 else os.geteuid())
        for name in ("CapPrm:", "CapEff:", "CapBnd:"):
            assert set(lines[lines.index(name) + 1]) == {"0"}
        assert lines[-4:] == ["0", "1", "2", "3"]  # 3 is the folder that `ls` reads

    async def test_the_agent_is_out_of_reach(self, make: Make) -> None:
        body = await make()
        attack = """
import os
for fd in range(20):
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        try:
            got = os.open(f"/proc/1/fd/{fd}", flags | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            os.write(got, b"\\0\\0\\0\\5{}\\n!!")
            print("wrote", fd)
        except OSError:
            pass
        try:
            if data := os.read(got, 10):
                print("read", fd, data)
        except OSError:
            pass
try:
    open("/proc/1/mem", "rb")
    print("opened memory")
except OSError:
    pass
try:
    os.kill(1, 9)
    print("killed")
except PermissionError:
    pass
"""
        seen = await run(body, "python", "-c", attack)
        assert [line for line in seen.stdout.splitlines() if not line.startswith("wrote 0")] == []
        assert (await bash(body, "echo alive")).stdout == "alive\n"

    async def test_there_is_no_network(self, engine: Engine, make: Make) -> None:
        body = await make()
        code = "import socket\nsocket.create_connection(('192.0.2.1', 80), 2)"
        assert (await run(body, "python", "-c", code)).exit.code == 1
        if not engine.capabilities.network:
            with pytest.raises(Unsupported):
                await make(network=True)

    async def test_a_full_disk_is_full_inside_only(self, make: Make) -> None:
        if os.geteuid() != 0:
            pytest.fail("the size of a volume is only limited as root: run the tests as root")
        body = await make()
        filled = await bash(
            body, "for i in 1 2 3; do head -c 20M /dev/zero > /root/$i; done; echo on"
        )
        assert "No space left" in filled.stderr
        assert filled.stdout == "on\n"
        assert (
            await bash(body, "rm /root/*; echo again > /root/x; cat /root/x")
        ).stdout == "again\n"

    async def test_limits_hold(self, make: Make) -> None:
        """Processes, processor time and memory, of a sandbox that goes on to work."""
        body = await make(limits=replace(SMALL, cpus=0.25))
        forks = await run(body, "python", "-c", FORKS)
        assert 32 <= int(forks.stdout) <= SMALL.processes
        busy = "import time\nuntil = time.monotonic() + 1\nwhile time.monotonic() < until: pass"
        assert (await run(body, "python", "-c", busy)).exit.code == 0
        assert _throttled(body) > 0
        greedy = f"print(len(bytearray(1 << 20) * {(SMALL.memory_bytes >> 20) + 200}))"
        eaten = await run(body, "python", "-c", greedy)
        assert (eaten.exit.code, eaten.stdout) == (1, "")
        assert (await bash(body, "echo alive")).stdout == "alive\n"

    async def test_a_full_sandbox_goes_on(self, make: Make) -> None:
        """Where no process is left to be had, who asks for one is told, and later gets one."""
        body = await make(limits=replace(SMALL, processes=24))
        full = FORKS.partition("for pid in made")[0].replace("))", "), flush=True)")
        hog = await begin(body, "python", "-c", full + "signal.pause()")
        while not hog.replay.after(0):
            await asyncio.wait_for(hog.changed(), 60)
        told = []
        for _ in range(3):
            try:
                told.append(str((await bash(body, "true")).exit.code))
            except HoldfastError as error:
                told.append(str(error))
        assert all(each == "0" or "temporarily unavailable" in each for each in told), told
        hog.kill()
        await hog.wait()
        began = time.monotonic()
        while True:
            try:
                assert (await bash(body, "echo again")).stdout == "again\n"
                break
            except (HoldfastError, AssertionError):
                assert time.monotonic() - began < 30
                await asyncio.sleep(0.1)

    async def test_a_fork_bomb_stays_inside(self, make: Make) -> None:
        body = await make()
        bomb = "import os\nwhile True:\n    os.fork()"
        process = await begin(body, "python", "-c", bomb)
        await asyncio.sleep(1.0)
        process.kill()
        await body.end()
        began = time.monotonic()
        while any(_alive(pid) for pid in _members(body)):
            assert time.monotonic() - began < 20
            await asyncio.sleep(0.1)


def _adopted(line: AgentLine, identity: str, end: int, balance: tuple[int, int]) -> Process:
    return line.adopt(identity, Replay(start=end), balance)


def _members(body: Body) -> list[int]:
    folders = limits.left_by(body.build.name).folders
    return [int(pid) for each in folders[:1] for pid in (each / "cgroup.procs").read_text().split()]


def _throttled(body: Body) -> int:
    """How often the sandbox had to wait because it had had its share of the processor."""
    for folder in limits.left_by(body.build.name).folders:
        if (told := folder / "cpu.stat").exists():
            found = dict(line.split() for line in told.read_text().splitlines())
            if "nr_throttled" in found:
                return int(found["nr_throttled"])
    raise AssertionError("nothing limits the processor here")


def _alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
