"""The suite that every engine passes: what is declared works, and the rest says `unsupported`.

class TestMine(EngineSuite):  # and ExactSuite, where it declares exact checkpoints
    @pytest.fixture
    def engine(self) -> Engine: ...
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import time
from dataclasses import fields, replace

import pytest

from holdfast.model.errors import HoldfastError, NotFound, Unsupported
from holdfast.protocol.sandbox_messages import ExecuteRequest
from holdfast.sandbox import limits
from holdfast.sandbox.agent import USER
from holdfast.sandbox.body import Body
from holdfast.sandbox.contract import Capabilities, Engine
from holdfast.sandbox.languages import plan
from holdfast.sandbox.process import Exit, Process
from holdfast.sandbox.start import Start
from holdfast.testing.freezing import SMALL, FreezingSuite, Make
from holdfast.testing.programs import (
    Run,
    bash,
    begin,
    environment,
    output_lines,
    result,
    run,
)
from holdfast.testing.waiting import until

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

UNTIL_FULL = (
    FORKS.partition("for pid in made")[0].replace("))", "), flush=True)") + "signal.pause()"
)

# Two that talk without a network, then two that need its loopback.
LOOPBACK = """
import socket
socket.socketpair()
print("beside", flush=True)
door = socket.create_server(("127.0.0.1", 0))
socket.create_connection(door.getsockname(), 20)
print("reached")
"""


AT_ITS_END = """
import atexit, os
atexit.register(print, "atexit")
file = open("/root/left", "w")
file.write("kept")
def uses(): return file
print("end")
"""

AT_ALL = """
import os, sys
for name in filter(str.isdigit, os.listdir("/proc")):
    if int(name) not in (1, os.getpid()):
        try:
            os.kill(int(name), int(sys.argv[1]))
        except OSError:
            continue
"""

OWN = """
import os
try:
    os.wait()
except ChildProcessError:
    children = "none"
fds = sorted(map(int, os.listdir("/proc/self/fd")))
print(os.getcwd(), os.environ["COLOUR"], children, fds, os.getsid(0) == os.getpid())
"""


# Puts a key where every program of the user finds it, and says its number; or looks for it there.
KEYS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
add_key, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
SEARCH, READ, SETPERM, OF_THE_USER = 10, 11, 5, -4
if sys.argv[1] == "put":
    number = libc.syscall(add_key, b"user", b"hidden", b"of A", 4, OF_THE_USER)
    libc.syscall(keyctl, SETPERM, number, 0x3F3F3F3F)
    print(number)
else:
    found = libc.syscall(keyctl, SEARCH, OF_THE_USER, b"user", b"hidden", 0)
    for number in {found, int(sys.argv[2])} - {-1}:
        data = ctypes.create_string_buffer(16)
        if libc.syscall(keyctl, READ, number, data, 16) > 0:
            print(data.value.decode())
try:
    print("hidden" in open("/proc/keys").read())
except OSError:
    print(False)
"""


# Opens a message queue by a name that everybody knows, or makes it.
QUEUE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
opens = {"x86_64": 240, "aarch64": 180}[os.uname().machine]
made = os.O_CREAT if sys.argv[1] == "make" else 0
print(libc.syscall(opens, b"known", os.O_RDWR | made, 0o666, None) >= 0)
"""


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

    async def test_no_keys_of_other_sandboxes(self, make: Make) -> None:
        put = await run(await make(), "python", "-c", KEYS, "put")
        number, _ = put.stdout.split()
        found = await run(await make(), "python", "-c", KEYS, "look", number)
        assert (found.stdout, found.stderr) == ("False\n", "")

    async def test_no_message_queues_of_other_sandboxes(self, make: Make) -> None:
        await run(await make(), "python", "-c", QUEUE, "make")
        assert (await run(await make(), "python", "-c", QUEUE, "open")).stdout == "False\n"

    async def test_memory_is_shared_by_name_and_run_is_not_theirs(self, make: Make) -> None:
        body = await make()
        seen = await bash(body, "echo shared > /dev/shm/x; cat /dev/shm/x; : > /run/x")
        assert (seen.stdout, seen.exit.code) == ("shared\n", 1)
        assert "/run/x" in seen.stderr

    async def test_what_cannot_be_run_is_told(self, make: Make) -> None:
        body = await make()
        with pytest.raises(NotFound, match="no-such-program"):
            await begin(body, "no-such-program")
        env = environment(body.build.root)
        with pytest.raises(HoldfastError, match="/no"):
            await body.line.start(Start(argv=["true"], env=env, cwd="/no"))
        made = "mkdir -p one two shut; echo hello > one/tool; chmod 0 shut; pwd"
        made += "; printf '#!/bin/sh\\necho found' > two/tool; chmod +x two/tool"
        home = (await bash(body, made)).stdout.strip()
        for word in (f"{home}/one/tool", f"{home}/shut/tool", home):
            with pytest.raises(HoldfastError, match="ermission"):
                await begin(body, word)
        with pytest.raises(HoldfastError, match="ermission"):
            await body.line.start(Start(argv=["true"], env=env, cwd=f"{home}/shut"))
        # As a shell does it: what cannot be run is passed over where the name is looked for.
        path = f"{home}/one:{home}/two:{env['PATH']}"
        found = await body.line.start(Start(argv=["tool"], env={**env, "PATH": path}))
        assert (await result(found)).stdout == "found\n"
        await bash(body, f"chmod +x {home}/one/tool")
        with pytest.raises(HoldfastError, match="format"):
            await begin(body, f"{home}/one/tool")
        with pytest.raises(HoldfastError):
            await body.line.start(Start(argv=["true"], env=env, limits={"NO_SUCH": 1}))
        # Each program has limits of its own, also wider ones than the one before.
        for blocks in (1024, 2048):
            limits = {"FSIZE": blocks * 512}
            argv = ["/bin/sh", "-c", "ulimit -f"]
            told = await body.line.start(Start(argv=argv, env=env, limits=limits))
            assert (await result(told)).stdout == f"{blocks}\n"
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

    async def test_ends_are_heard_while_others_begin(self, make: Make) -> None:
        body = await make()
        begun = [await begin(body, "true") for _ in range(60)]
        for each in begun:
            assert await asyncio.wait_for(each.wait(), 30) == Exit(code=0)

    async def test_killing_takes_the_whole_group(self, make: Make) -> None:
        body = await make()
        process = await begin(body, "bash", "-c", "sleep 1000 & echo $!; wait")
        while not process.replay.end:
            await process.changed()
        process.kill()
        done = await result(process)
        assert done.exit == Exit(signal=9)
        other = done.stdout.strip()
        assert (await bash(body, f"{_gone(other)} kill -0 {other}")).exit.code != 0

    async def test_one_that_nobody_waits_for_any_more_does_not_stay(self, make: Make) -> None:
        body = await make()
        starting = asyncio.create_task(begin(body, "bash", "-c", "sleep 1000; :"))
        await asyncio.sleep(0)  # the order is given
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert (await bash(body, "echo still here")).stdout == "still here\n"
        await until(lambda: not body.line.processes, "it has ended")
        # The one that it had begun was killed with it, and is collected by itself.
        sleeps = "cat /proc/[0-9]*/comm 2>/dev/null | grep"
        seen = await bash(body, f"while {sleeps} -qx sleep; do :; done; {sleeps} -cx sleep")
        assert seen.stdout.strip() == "0"

    async def test_orphans_are_reaped(self, make: Make) -> None:
        body = await make()
        begun = await bash(body, "for i in 1 2 3 4 5; do (sleep 0.05 & echo $!) ; done")
        orphans = begun.stdout.split()
        assert len(orphans) == 5
        seen = await bash(body, f"{_gone(*orphans)} cat /proc/[0-9]*/stat | grep -c ') Z '")
        assert seen.stdout.strip() == "0"

    @pytest.mark.parametrize("name", [each.name for each in fields(Capabilities)])
    def test_what_is_not_declared_is_unsupported(self, engine: Engine, name: str) -> None:
        if getattr(engine.capabilities, name):
            engine.capabilities.need(name, engine.name)  # raises nothing
        else:
            with pytest.raises(Unsupported, match=f"{engine.name} .*{name.replace('_', ' ')}"):
                engine.capabilities.need(name, engine.name)

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
        await until(lambda: process.replay.end > 0, "it speaks")
        await asyncio.sleep(0.5)
        held = process.replay.end
        assert 0 < held < 1_000_000
        process.consumed()
        while process.replay.end < 3_000_000:
            await asyncio.wait_for(process.changed(), 30)
            process.consumed()
        assert (await process.wait()).code == 0
        assert process.replay.end == 3_000_000

    # -- Python, which may begin as a copy of an interpreter that waits

    async def test_code_is_what_an_interpreter_would_run(self, make: Make) -> None:
        """Whether it is the first, which no interpreter waits for yet, or a later one."""
        body = await make()
        for _ in range(2):
            done = await code(body, "import sys; print(sys.stdin.read()); sys.exit(3)", b"in")
            assert (done.exit.code, done.stdout) == (3, "in\n")
            done = await code(body, "import sys; sys.exit('text')")
            assert (done.exit.code, done.stderr) == (1, "text\n")
            done = await code(body, "def f():\n    1 / 0\nf()")
            plain = await run(body, "python", "-c", "def f():\n    1 / 0\nf()")
            assert (done.exit.code, done.stderr) == (1, plain.stderr)
            done = await code(body, AT_ITS_END)
            assert (done.exit.code, done.stdout) == (0, "end\natexit\n")
            assert (await bash(body, "cat /root/left")).stdout == "kept"
            done = await code(body, OWN, env={"COLOUR": "blue"}, cwd="/tmp")
            assert done.stdout == "/tmp blue none [0, 1, 2, 3] True\n"
            done = await code(body, "print(input())", stdin=False)
            assert "EOFError" in done.stderr
            with pytest.raises(NotFound, match="/no/such"):
                await code(body, "", cwd="/no/such")
            await asyncio.sleep(1.0)  # one begins to wait

    async def test_what_code_finds_is_as_it_is_now(self, make: Make) -> None:
        body = await make()
        await waits(body)
        where = await code(body, "import site; print(site.getusersitepackages())")
        script = f"mkdir -p {where.stdout.strip()}; echo word = 1 > {where.stdout.strip()}/fresh.py"
        await bash(body, f"{script}; mkdir /root/p; echo word = 2 > /root/p/given.py")
        assert (await code(body, "import fresh; print(fresh.word)")).stdout == "1\n"
        given = {"PYTHONPATH": "/root/p"}
        assert (await code(body, "import given; print(given.word)", env=given)).stdout == "2\n"
        await waits(body)
        assert (await code(body, "import fresh; print(fresh.word)")).stdout == "1\n"

    async def test_code_of_several_at_once(self, make: Make) -> None:
        body = await make()
        await waits(body)
        numbers = "import random, secrets, time; time.sleep(0.1)\n"
        numbers += "print(random.random(), secrets.token_hex(8))"
        begun = [await begin_code(body, numbers) for _ in range(6)]
        told = [(await result(each)).stdout for each in begun]
        assert len(set(told)) == 6
        goes_on = await begin_code(body, "import time\nprint(1, flush=True)\ntime.sleep(1000)")
        await until(lambda: bool(goes_on.replay.end), "it runs")
        goes_on.kill()
        assert (await result(goes_on)).exit == Exit(signal=9)

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
    async def test_code_runs_once_whatever_becomes_of_who_waits(
        self, make: Make, number: int
    ) -> None:
        """A program may do to one that waits what it may do to all of its user's."""
        body = await make()
        for turn in range(1, 5):
            await waits(body)
            assert (await run(body, "python", "-c", AT_ALL, str(int(number)))).exit.code == 0
            assert (await code(body, "open('/root/ran', 'a').write('x')")).exit.code == 0
            assert (await bash(body, "cat /root/ran")).stdout == "x" * turn

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
    async def test_code_ends_whatever_it_does_to_its_parent(self, make: Make, number: int) -> None:
        body = await make()
        await waits(body)
        text = f"import os, sys\nif os.getppid() > 1: os.kill(os.getppid(), {int(number)})\n"
        for _ in range(2):
            done = await code(body, f"{text}print('done'); sys.exit(3)")
            assert (done.exit, done.stdout) == (Exit(code=3), "done\n")

    # -- walls

    async def test_who_asks_to_be_traced_is_nobody_s_trouble(self, make: Make) -> None:
        """Its stops are told to the agent as ends are."""
        body = await make()
        asks = "import ctypes, os\nprint(ctypes.CDLL(None).ptrace(0, 0, 0, 0), flush=True)\n"
        stopped = await begin(body, "python", "-c", asks + "os.kill(os.getpid(), 19)")
        await output_lines(stopped, 1)
        for _ in range(3):
            assert (await bash(body, "sleep 0.1; echo alive")).stdout == "alive\n"
        stopped.kill()
        assert (await result(stopped)).exit == Exit(signal=9)

    async def test_programs_have_no_power(self, make: Make) -> None:
        body = await make()
        seen = await bash(
            body, "id -u; grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status; ls /proc/self/fd"
        )
        lines = seen.stdout.split()
        user = USER if os.geteuid() == 0 else os.geteuid()
        assert lines[0] == str(user)
        became = "import os; print(os.getresuid(), os.getresgid()[:2], os.getpid() == os.getsid(0))"
        became += "; os.setresuid(0, 0, 0)"
        tried = await run(body, "python", "-c", became)
        assert tried.stdout.startswith(f"({user}, {user}, {user})")
        assert tried.stdout.endswith("True\n")
        assert "PermissionError" in tried.stderr
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
        # Nor can who aims at it end it in a moment in which it begins programs.
        hammer = "import os\nprint('up', flush=True)\nwhile True:\n try: os.kill(1, 9)\n"
        hammer += " except PermissionError: continue"
        beating = await begin(body, "python", "-c", hammer)
        await until(lambda: bool([*beating.replay.after(0)]), "it beats")
        for number in range(10):
            assert (await bash(body, f"echo alive {number}")).stdout == f"alive {number}\n"
        assert body.line.processes  # it beats still
        beating.kill()

    async def test_there_is_no_network(self, engine: Engine, make: Make) -> None:
        body = await make()
        code = "import socket\nsocket.create_connection(('192.0.2.1', 80), 2)"
        assert (await run(body, "python", "-c", code)).exit.code == 1
        if not engine.capabilities.network:
            with pytest.raises(Unsupported):
                await make(network=True)

    async def test_offline_there_is_not_even_a_loopback(self, make: Make) -> None:
        body = await make()
        reached = await run(body, "python", "-c", LOOPBACK)
        assert reached.stdout == "beside\nreached\n"
        kept = await run(body, "python", "-c", LOOPBACK, offline=True)
        assert (kept.exit.code, kept.stdout) == (1, "beside\n")
        assert "Address family not supported" in kept.stderr
        script = f"{shlex.join([*body.build.root.python, '-c', LOOPBACK])}; echo $?"
        below = await run(body, "bash", "-c", script, offline=True)  # whatever it starts
        assert below.stdout == "beside\n1\n"

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
        # So few that all of them together stay well below the memory: in gVisor each is 7 MB.
        few = replace(SMALL, cpus=0.25, processes=40)
        body = await make(limits=few)
        forks = await run(body, "python", "-c", FORKS)
        assert 32 <= int(forks.stdout) <= few.processes
        busy = "import time\nuntil = time.monotonic() + 1\nwhile time.monotonic() < until: pass"
        for _ in range(20):  # where others are busy, too, it may not even get its share
            assert (await run(body, "python", "-c", busy)).exit.code == 0
            if _throttled(body):
                break
        assert _throttled(body) > 0
        greedy = f"print(len(bytearray(1 << 20) * {(SMALL.memory_bytes >> 20) + 200}))"
        eaten = await run(body, "python", "-c", greedy)
        assert (eaten.exit.code, eaten.stdout) == (1, "")
        assert (await bash(body, "echo alive")).stdout == "alive\n"

    async def test_processes_of_neighbours_do_not_count(self, make: Make) -> None:
        """Programs of all sandboxes may be one user's to the kernel below."""
        first = await make(limits=replace(SMALL, processes=24))
        second = await make(limits=replace(SMALL, processes=24))
        hog = await begin(first, "python", "-c", UNTIL_FULL)
        while not hog.replay.after(0):
            await asyncio.wait_for(hog.changed(), 60)
        assert int((await run(second, "python", "-c", FORKS)).stdout) >= 16

    async def test_a_full_sandbox_goes_on(self, make: Make) -> None:
        """Where no process is left to be had, who asks for one is told, and later gets one."""
        body = await make(limits=replace(SMALL, processes=24))
        hog = await begin(body, "python", "-c", UNTIL_FULL)
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


async def begin_code(body: Body, text: str, **more: object) -> Process:
    """Python code, as a client asks for it."""
    asked = ExecuteRequest(language="python", code=text, **more)  # type: ignore[arg-type]
    return await body.line.start(plan(asked, body.build.root, body.build.limits, "").start)


async def code(body: Body, text: str, given: bytes = b"", **more: object) -> Run:
    process = await begin_code(body, text, **more)
    if given:
        await process.write(given)
    if more.get("stdin", True):
        process.end_input()
    return await result(process)


async def waits(body: Body) -> None:
    """Run code until an interpreter waits for more of it, where there is any that does."""
    for _ in range(2):
        assert (await code(body, "pass")).exit.code == 0
        await asyncio.sleep(1.0)


def _gone(*pids: str) -> str:
    """A script that goes on when these have ended and were collected: soon, but not at once."""
    return "".join(f"while kill -0 {pid} 2>/dev/null; do sleep 0.02; done; " for pid in pids)


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
