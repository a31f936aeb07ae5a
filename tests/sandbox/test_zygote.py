"""The interpreter that waits, by itself on this machine: a copy of it is what `-c` would have been,
in every Python that is here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from select import epoll, select
from typing import TYPE_CHECKING

import pytest

from holdfast.sandbox.agent.copier import Copier, suits
from holdfast.testing.waiting import eventually

if TYPE_CHECKING:
    from holdfast.sandbox.agent.small import Order

VERSIONS = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
FOUND = {
    f"{name} {found.parts[1]}": found
    for name in ("3.11", "3.12", "3.13")
    for found in [*VERSIONS.glob(f"{name}.*/bin/python{name}"), Path(f"/usr/bin/python{name}")]
    if found.exists()
}
ENVIRON = {"PATH": os.defpath, "HOME": "/nonexistent", "LC_CTYPE": "C.UTF-8"}

CODES = {
    "nothing": "",
    "words": "import sys\nprint('out')\nprint('err', file=sys.stderr)",
    "exit 3": "import sys; sys.exit(3)",
    "exit with text": "import sys; sys.exit('text')",
    "exit with nothing": "raise SystemExit",
    "a large exit": "import sys; sys.exit(1 << 40)",
    "an exit below zero": "import sys; sys.exit(-1)",
    "an exception": "def f(x):\n    return 1 / x\n\nf(0)",
    "exceptions in a row": "try:\n    {}['a']\nexcept KeyError:\n    raise ValueError('b')",
    "an exception with notes": "e = ValueError('x'); e.add_note('more'); raise e",
    "a group": "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])",
    "syntax": "x = = 1",
    "indentation": "if 1:\nx",
    "a cookie": "# coding: latin-1\nprint('é')",
    "letters": "print('Grüße, 世界', ascii('é'))",
    "names": "print(sorted(globals())); print(__name__, __doc__, __spec__)",
    "doc": "'a doc'\nprint(__doc__)",
    "main": "import __main__, sys; x = 1; print(__main__.x, __main__ is sys.modules[__name__])",
    "modules": "import sys; print(sorted(sys.modules))",
    "arguments": "import sys; print(sys.argv, sys.path, sys.flags, sys.orig_argv[1:])",
    "descriptors": "import os; print(os.listdir('/proc/self/fd'))",
    "signals": "import signal; print([signal.getsignal(n) for n in (2, 13, 15, 17, 25)])",
    "mask": "import signal; print(signal.pthread_sigmask(0, []), signal.set_wakeup_fd(-1))",
    "leader": "import os; print(os.getsid(0) == os.getpid() == os.getpgrp())",
    "children": "import os\ntry: os.wait()\nexcept ChildProcessError: print('none')",
    "threads": "import threading; print(threading.enumerate() == [threading.main_thread()])",
    "a thread that goes on": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()"
    ),
    "input": "import sys; print(repr(sys.stdin.read()), repr(sys.stdin.readline()))",
    "a file left open": "f = open('left', 'w'); f.write('kept'); f.self = f = None",
    "a file in a cycle": (
        "class C: pass\nc = C(); c.f = open('left', 'w'); c.f.write('kept'); c.c = c\n"
        "def g(): return c"
    ),
    "a file of another module's": "import os\nos.f = open('left', 'w'); os.f.write('kept')",
    "a file in place of stdout": "import sys; sys.stdout = open('left', 'w'); print('kept')",
    "a full disk": "import sys; sys.stdout = open('/dev/full', 'w'); print('lost')",
    "the end": (
        "import atexit\natexit.register(print, 'atexit')\n"
        "class C:\n    def __del__(self): print('over', self.n)\n"
        "a = C(); a.n = 'a'\nb = C(); b.n = 'b'; b.b = b\ndef f(): return a\nprint('end')"
    ),
    "the end after an exception": (
        "import atexit\natexit.register(print, 'atexit')\n"
        "class C:\n    def __del__(self): print('over')\na = C()\n1 / 0"
    ),
    "a hook": "import sys; sys.excepthook = lambda *a: print('hook', a[0], a[2].tb_lineno)\n\n1/0",
    "a hook that ends it": "import sys; sys.excepthook = lambda *a: sys.exit(6)\n1/0",
    "a hook that fails": "import sys\ndef h(*a): {}['a']\nsys.excepthook = h\n1/0",
    "a hook that is none": "import sys; sys.excepthook = 3\n1/0",
    "no hook": "import sys; del sys.excepthook\n1/0",
    "closed streams": "import sys; sys.stdout.close(); sys.stderr.close()",
    "a stdout that is gone": "import os; print('lost'); os.close(1)",
    "a stderr that is gone": "import os, sys; os.close(2); print('lost', file=sys.stderr)",
    "a detached stdout": "import sys; sys.stdout.detach(); sys.exit(3)",
    "a full disk at the end": (
        "import atexit, os, sys\nfull = os.open('/dev/full', os.O_WRONLY)\n"
        "atexit.register(lambda: (os.dup2(full, 1), sys.stdout.write('lost')))"
    ),
    "interrupted": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "left": "import os; print('lost', end=''); os._exit(4)",
    "forked": "import os\npid = os.fork()\nif pid: print(os.waitpid(pid, 0)[1])\nelse: exit(5)",
    "environment": "import os; print(sorted(os.environ.items())); os.system('echo $EACH $HOME')",
    "deep": "def f(n): return n and f(n - 1)\nprint(f(900))",
    "imports": "import socket, select, gc, json, random; print(socket.socketpair()[0].family)",
    "source": (
        "import inspect\ndef f(): pass\n"
        "try: print(inspect.getsource(f))\nexcept OSError as e: print(e)"
    ),
}


class Here:
    """Copies of an interpreter on this machine, begun without an agent."""

    def __init__(self, python: str | Path) -> None:
        self.python = str(python)
        self.poll = epoll()
        self.ends: dict[int, int] = {}
        self.begun: list[int] = []
        self.copier = Copier(self.launch, self.poll, self.ends.__setitem__)

    def launch(self, order: Order, streams: list[int]) -> int:
        moves = [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate(streams)]
        others = [(os.POSIX_SPAWN_CLOSE, fd) for fd in inherited() if fd >= len(streams)]
        actions = [*moves, *others]
        begun = os.posix_spawn(
            self.python, order["argv"], order["env"], file_actions=actions, setsid=True
        )
        self.begun.append(begun)
        return begun

    def order(self, code: str, folder: Path, **more: object) -> Order:
        argv = [self.python, "-c", code]
        return {"argv": argv, "env": ENVIRON, "cwd": str(folder), "warm": True, **more}

    def ready(self, code: str = "pass", **more: object) -> None:
        """Have one waiting, as after a first order."""
        assert self.copier.copy(self.order(code, Path("/"), **more), []) is None
        assert self.copier.missing
        self.copier.replenish()

        def waits() -> bool:
            self.hear()
            original = self.copier._original
            return original is not None and original.ready

        eventually(waits, "it is ready")

    def hear(self) -> None:
        for fd, _ in self.poll.poll(0.05):
            if fd == self.copier.fd:
                self.copier.hear()

    def run(
        self, code: str, folder: Path, given: bytes = b"in", **more: object
    ) -> subprocess.CompletedProcess[bytes]:
        """To its end, as a copy."""
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        os.write(pipes[0][1], given)
        os.close(pipes[0][1])
        try:
            pid = self.copier.copy(self.order(code, folder, **more), theirs)
        finally:
            for fd in theirs:
                os.close(fd)
        assert pid is not None
        out, err = (read_all(pipes[at][0]) for at in (1, 2))
        eventually(lambda: self.hear() or pid in self.ends, "it has ended")
        status = os.waitstatus_to_exitcode(self.ends.pop(pid))
        return subprocess.CompletedProcess([], status, out, err)

    def close(self) -> None:
        self.copier.dismiss()
        for pid in self.begun:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
                self.copier.reaped(pid)


def inherited() -> list[int]:
    """What whoever runs the tests left open for programs."""
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if os.get_inheritable(fd):
                found.append(fd)
    return found


def read_all(fd: int) -> bytes:
    text = b""
    while block := os.read(fd, 65536):
        text += block
    os.close(fd)
    return text


@pytest.fixture(params=list(FOUND))
def here(request: pytest.FixtureRequest) -> Iterator[Here]:
    here = Here(FOUND[request.param])
    yield here
    here.close()


def plain(here: Here, code: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    words = [here.python, "-c", code]
    return subprocess.run(
        words, input=b"in", capture_output=True, env=ENVIRON, cwd=folder, start_new_session=True
    )


def test_a_copy_is_what_an_interpreter_would_have_been(here: Here, tmp_path: Path) -> None:
    here.ready()
    different = {}
    for name, code in CODES.items():
        told = []
        for number in range(2):
            folder = tmp_path / f"{name} {number}"
            folder.mkdir()
            done = (plain, Here.run)[number](here, code, folder)  # type: ignore[operator]
            left = {each.name: each.read_text() for each in folder.iterdir()}
            told.append((done.returncode, done.stdout, done.stderr, left))
        if told[1] != told[0]:
            different[name] = told
    assert different == {}


@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_it_ends_with_whoever_has_need_of_it(here: Here, tmp_path: Path, used: bool) -> None:
    """Also where nobody could tell it to: copies would find out, and it would make others."""
    here.ready()
    if used:
        here.run("pass", tmp_path)
    original = here.copier._original
    assert original is not None
    original.link.close()
    os.waitpid(original.pid, 0)
    here.begun.remove(original.pid)
    here.copier._original = None


def test_copies_have_random_numbers_of_their_own(here: Here, tmp_path: Path) -> None:
    here.ready()
    code = "import random, secrets, uuid, os, ssl, tempfile\n"
    code += "print(random.random(), secrets.token_hex(8), uuid.uuid4(), uuid.uuid1(), "
    code += "ssl.RAND_bytes(8).hex(), tempfile.mktemp(), os.urandom(8).hex())"
    told = [here.run(code, tmp_path).stdout.split() for _ in range(4)]
    for column in zip(*told, strict=True):
        assert len(set(column)) == 4


def test_variables_of_one_request(here: Here, tmp_path: Path) -> None:
    here.ready()
    code = "import os; print(os.environ.get('HOLDFAST_REQUEST_ID')); "
    code += "os.system('echo $HOLDFAST_REQUEST_ID')"
    one = {**ENVIRON, "HOLDFAST_REQUEST_ID": "one"}
    assert here.run(code, tmp_path, env=one).stdout == b"one\none\n"
    assert here.run(code, tmp_path).stdout == b"\nNone\n"


def test_what_another_interpreter_would_be_is_begun_as_always(here: Here, tmp_path: Path) -> None:
    here.ready()
    copy = here.copier.copy
    order = here.order("print(1)", tmp_path)
    assert copy({**order, "env": {**ENVIRON, "PYTHONPATH": "/x"}}, []) is None
    assert copy({**order, "limits": {"DATA": 1 << 30}}, []) is None
    assert copy({**order, "argv": [here.python, "-I", "-c", "1"]}, []) is None
    assert not here.copier.missing  # they come in turns
    assert copy({**order, "argv": [here.python, "-I", "-c", "2"]}, []) is None
    assert here.copier.missing  # that one may come again


@pytest.mark.parametrize("path", ["/usr/bin:.", "", "bin:/usr/bin"])
def test_an_interpreter_that_is_looked_for_where_code_runs_does_not_suit(path: str) -> None:
    order = {"argv": ["python3", "-c", "1"], "warm": True, "cwd": "/tmp"}
    assert suits({**order, "env": {"PATH": "/usr/bin:/bin"}})
    assert not suits({**order, "env": {"PATH": path}})


@pytest.mark.parametrize(
    "fields",
    [
        {"cwd": "/no/such"},
        {"argv": ["python", "-c", "\udcff"]},
        {"argv": ["python", "-c", "#" * 70_000]},
    ],
)
def test_what_cannot_be_told_is_begun_as_always(
    here: Here, tmp_path: Path, fields: dict[str, object]
) -> None:
    here.ready()
    if "argv" in fields:
        fields = {"argv": [here.python, *fields["argv"][1:]]}  # type: ignore[index]
    streams = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
    assert here.copier.copy({**here.order("", tmp_path), **fields}, streams) is None
    for fd in streams:
        os.close(fd)
    assert here.run("print(1)", tmp_path).stdout == b"1\n"


def test_what_is_installed_afterwards_is_found(tmp_path: Path) -> None:
    """In a site that was not there when it began."""
    here = Here(FOUND["3.11 usr"])
    home = {**ENVIRON, "HOME": str(tmp_path)}
    here.ready(env=home)
    assert here.run("print(1)", tmp_path, env=home).stdout == b"1\n"
    site = tmp_path / ".local/lib/python3.11/site-packages"
    site.mkdir(parents=True)
    (site / "fresh.py").write_text("word = 'new'")
    order = here.order("import fresh", tmp_path, env=home)
    streams = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
    assert here.copier.copy(order, streams) is None
    for fd in streams:
        os.close(fd)
    assert here.copier.missing
    os.waitpid(here.begun[-1], 0)
    here.copier.reaped(here.begun[-1])
    here.ready(env=home)
    assert here.run("import fresh; print(fresh.word)", tmp_path, env=home).stdout == b"new\n"
    here.close()


def test_another_interpreter_under_the_same_name_is_another(tmp_path: Path) -> None:
    """One that leads to it, or begins it; as with environments that are made anew."""
    here = Here(tmp_path / "python")
    for turn, found in enumerate(("3.11", "3.12")):
        other = next(path for name, path in FOUND.items() if name.startswith(found))
        (tmp_path / "next").write_text(f'#!/bin/sh\nexec {other} "$@"\n')
        (tmp_path / "next").chmod(0o755)
        (tmp_path / "next").rename(here.python)
        if turn:  # the one that waits is of no use
            assert here.copier.copy(here.order("1", tmp_path), []) is None
        here.ready()
        said = here.run("import sys; print('%d.%d' % sys.version_info[:2])", tmp_path).stdout
        assert said.decode() == f"{found}\n"
    here.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_is_ended_or_stopped_runs_nothing(tmp_path: Path, number: int) -> None:
    """With all that wait: nothing has run when this is known, and nothing will."""
    here = Here(FOUND["3.11 usr"])
    here.ready()
    [original] = here.begun
    time.sleep(0.2)
    os.killpg(original, number)
    if number == signal.SIGKILL:
        time.sleep(0.1)
    streams = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
    order = here.order("open('ran', 'a').write('x')", tmp_path)
    began = time.monotonic()
    assert here.copier.copy(order, streams) is None
    assert time.monotonic() - began < 5
    os.waitpid(original, 0)
    here.copier.reaped(original)
    time.sleep(0.3)
    assert not (tmp_path / "ran").exists()
    for fd in streams:
        os.close(fd)
    here.close()


def test_an_interpreter_that_says_something_as_it_begins_is_not_copied(tmp_path: Path) -> None:
    site = tmp_path / ".local/lib/python3.11/site-packages"
    site.mkdir(parents=True)
    (site / "usercustomize.py").write_text("print('hello', flush=True)")
    here = Here(FOUND["3.11 usr"])
    home = {**ENVIRON, "HOME": str(tmp_path)}
    order = here.order("1", tmp_path, env=home)
    assert here.copier.copy(order, []) is None
    here.copier.replenish()
    eventually(lambda: here.hear() or here.copier.fd < 0, "it is let go")
    assert here.copier.copy(order, []) is None
    assert not here.copier.missing  # nor will it be
    os.waitpid(here.begun[-1], 0)


def test_ends_outlive_the_one_that_knew_of_them(tmp_path: Path) -> None:
    """Programs go on as ours; what only the one that is gone knew is told as killed."""
    here = Here(FOUND["3.11 usr"])
    here.ready()
    streams = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
    code = "import time; time.sleep(0.5); open('ran', 'w')"
    pid = here.copier.copy(here.order(code, tmp_path), streams)
    for fd in streams:
        os.close(fd)
    assert pid is not None
    here.close()
    assert here.ends == {}  # it runs
    eventually((tmp_path / "ran").exists, "it went on")
    assert here.copier.missing


def test_an_end_that_was_told_is_heard_whatever_comes_first(tmp_path: Path) -> None:
    """Before a checkpoint it is dismissed, perhaps as it has something to say."""
    here = Here(FOUND["3.11 usr"])
    here.ready()
    streams = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
    pid = here.copier.copy(here.order("import sys; sys.exit(3)", tmp_path), streams)
    for fd in streams:
        os.close(fd)
    original = here.copier._original
    assert pid is not None
    assert original is not None
    assert select([original.link], [], [], 10)[0]  # it has said so
    here.close()
    assert here.ends == {pid: 3 << 8}
