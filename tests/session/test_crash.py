"""A worker that dies is reported once; then the session goes on from its last checkpoint."""

from __future__ import annotations

import asyncio
import os

import pytest

from holdfast.model.errors import CaptureFailed
from holdfast.session import Session


async def value(session: Session, code: str) -> object:
    result = await session.execute(code)
    assert result.error is None, result.error.traceback
    return result.value


async def test_a_crash_is_reported_and_the_session_resumes(session: Session) -> None:
    await session.execute("x = 1")
    cp = await session.checkpoint()
    await session.execute("x = 2")
    dead = session.pid
    result = await session.execute("import os\nos.kill(os.getpid(), 9)")
    assert result.error is not None
    assert (result.error.type, result.resumed_from) == ("WorkerDied", None)
    assert not session.alive
    again = await session.execute("x")
    assert (again.value, again.resumed_from) == (1, cp.id)
    assert session.report["x"].outcome == "exact"
    assert session.pid not in (None, dead)
    assert (await session.execute("x")).resumed_from is None
    assert (await session.checkpoint()).parents == (cp.id,)


async def test_an_idle_crash_is_reported_by_the_next_call(session: Session) -> None:
    await session.execute("x = 1")
    await session.checkpoint()
    os.kill(session.pid, 9)
    told = await session.execute("x = 2")  # is not run: it may rely on what is gone
    assert told.error is not None
    assert told.error.type == "WorkerDied"
    assert await value(session, "x") == 1
    os.kill(session.pid, 9)
    with pytest.raises(CaptureFailed):
        await session.checkpoint()
    assert await value(session, "x") == 1


async def test_without_a_checkpoint_there_is_nothing_to_go_on_from(session: Session) -> None:
    await session.execute("x = 1\nimport os\nos._exit(1)")
    for _ in range(3):
        assert (await session.execute("x")).error.type == "WorkerDied"


async def test_every_cell_is_there_after_a_crash(make) -> None:
    session = await make("cells", auto_checkpoint="cell")
    for number in range(3):
        await session.execute(f"x = {number}")
        assert (await session.execute("import os\nos.abort()")).error.type == "WorkerDied"
        assert await value(session, "x") == number


async def test_a_session_that_cannot_be_resumed_says_so(session: Session) -> None:
    await session.execute(
        "import os\nhost = os.getpid()\n"
        "class Trap:\n"
        "    def __setstate__(self, state):\n"
        "        if os.getppid() == state['host']: os.kill(os.getpid(), 9)\n"
        "trap = Trap()\ntrap.host = os.getppid()"
    )
    await session.checkpoint()
    await session.execute("os._exit(2)")
    for _ in range(2):
        error = (await session.execute("1")).error
        assert error is not None
        assert error.type == "WorkerDied"
        assert "cannot be restored either" in error.message


HOSTILE = {
    "exit": "import os\nos._exit(5)",
    "every file closed": "import os\nos.closerange(0, 1000)",
    "abort": "import os\nos.abort()",
    "another program": "import os\nos.execvp('true', ['true'])",
    "stack": (
        "import sys\nsys.setrecursionlimit(10**9)\nnested = []\n"
        "for _ in range(10**6): nested = [nested]\nrepr(nested)"
    ),
    "null": "import ctypes\nctypes.string_at(0)",
}


@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE)
async def test_code_that_ends_its_worker(make, code: str) -> None:
    session = await make("hostile", auto_checkpoint="cell")
    await session.execute("x = [1]")
    result = await asyncio.wait_for(session.execute(code), 30)
    assert result.error is not None
    if result.error.type != "WorkerDied":
        assert "Error" in result.error.type  # this Python noticed in time
    assert await value(session, "x") == [1]


SURVIVED = {
    "sys.exit": "import sys\nsys.exit(1)",
    "quit": "raise SystemExit",
    "interrupt": "raise KeyboardInterrupt",
    "generator exit": "raise GeneratorExit",
    "recursion": "def f(): return f()\nf()",
    "no builtins": "import builtins\nbuiltins.__dict__.clear()",
    "no len": "import builtins as b\ndel b.isinstance, b.len, b.BaseException\n1 / 0",
    "no stdout": "import sys\ndel sys.stdout, sys.stderr, sys.stdin",
    "closed stdout": "import sys\nsys.stdout.close()",
    "modules": (
        "import sys\nfor name in list(sys.modules):\n"
        "    if 'holdfast' in name: del sys.modules[name]"
    ),
    "signals": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)",
    "excepthook": "import sys\nsys.excepthook = None\n1 / 0",
    "settrace": "import sys\nsys.settrace(lambda *a: 1 / 0)\ndef f(): pass\nf()",
    "threads": "import threading\nfor _ in range(50): threading.Thread(target=exit).start()",
    "globals": "globals().clear()\ndel __builtins__",
    "output": "for _ in range(300): print('x' * (1 << 20))",
    "limit": "import sys\nsys.setrecursionlimit(60)",
}


@pytest.mark.parametrize("code", SURVIVED.values(), ids=SURVIVED)
async def test_code_that_its_worker_survives(make, code: str) -> None:
    session = await make("hostile")
    await session.execute("x = [1]")
    cp = await session.checkpoint()
    pid = session.pid
    await asyncio.wait_for(session.execute(code), 60)
    assert await value(session, "1 + 1") == 2
    assert session.pid == pid
    await session.checkpoint()
    await session.restore(cp)
    assert await value(session, "x") == [1]
