"""Running code: values, output, errors, input, interrupts, timeouts, and a worker's death."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.model.errors import CaptureFailed, UsageError
from holdfast.session import Repr, Session
from holdfast.session.result import Prompt
from holdfast.testing.waiting import until


async def test_value_is_the_last_expression(session: Session) -> None:
    result = await session.execute("x = 1\nx + 1")
    assert (result.value, result.type_name, result.error, result.ok) == (2, "int", None, True)
    assert result.duration > 0
    assert (await session.execute("x = 3")).value is None
    assert (await session.execute("x")).execution_count == 3


@pytest.mark.parametrize(
    "text",
    [
        "None",
        "[True, 2**70, -1.5, 'text', b'bytes', (1, (2,)), {3}, frozenset([4]), 1j]",
        "{'a': [1], (1, 2): {'b': None}, 5: ()}",
        "'\\ud800 lone'",
        "float('inf')",
    ],
)
async def test_plain_data_comes_back_as_data(session: Session, text: str) -> None:
    value = (await session.execute(text)).value
    expected = eval(text)
    assert value == expected
    assert type(value) is type(expected)


async def test_other_values_are_shown(session: Session) -> None:
    result = await session.execute("class C:\n    def __repr__(self): return 'a C'\nC()")
    assert result.value == "a C"
    assert isinstance(result.value, Repr)
    assert result.value.type_name == result.type_name == "C"
    broken = await session.execute("class D:\n    def __repr__(self): 1/0\nD()")
    assert "ZeroDivisionError" in str(broken.value)
    cyclic = await session.execute("a = []\na.append(a)\na")
    assert cyclic.value == "[[...]]"


async def test_output_of_python_c_code_and_children(session: Session) -> None:
    result = await session.execute(
        "import ctypes, subprocess, sys\n"
        "print('python')\n"
        "ctypes.CDLL(None).printf(b'c code\\n')\n"
        "subprocess.run(['echo', 'child'])\n"
        "print('wrong', file=sys.stderr)\n"
        "sys.stdout.buffer.write('half \\u20ac'.encode()[:-1])\n"
        "0"
    )
    # In order: `-u` leaves C's own buffer empty, too.
    assert result.stdout == "python\nc code\nchild\nhalf \ufffd"
    assert result.stderr == "wrong\n"


async def test_more_output_than_a_pipe_holds(session: Session) -> None:
    result = await session.execute("print('x' * 1_000_000)")
    assert len(result.stdout) == 1_000_001


async def test_stream_gives_output_as_it_comes(session: Session, tmp_path: Path) -> None:
    # It goes on when a line was seen: who stands still meanwhile does not get two at once.
    seen = str(tmp_path / "seen-{i}")
    stream = session.stream(
        "import os, time\nfor i in range(3):\n    print(i)\n"
        f"    while not os.path.exists(f{seen!r}): time.sleep(0.01)\n"
        "    time.sleep(0.15)\n'done'"
    )
    moments = []
    texts: list[str] = []
    async for event in stream:
        assert event.stream == "stdout"
        texts.append(event.text)
        moments.append(time.monotonic())
        for line in "".join(texts).split():
            (tmp_path / f"seen-{line}").touch()
    assert "".join(texts) == "0\n1\n2\n"
    assert moments[-1] - moments[0] > 0.2
    assert stream.result.value == "done"


async def test_output_of_c_code_and_children_comes_while_the_cell_runs(
    session: Session, tmp_path: Path
) -> None:
    """Each goes on only when what it said was seen."""
    seen = str(tmp_path / "seen-")
    stream = session.stream(
        "import ctypes, os, subprocess, time\n"
        f"def wait(what):\n    while not os.path.exists({seen!r} + what): time.sleep(0.01)\n"
        "libc = ctypes.CDLL(None)\n_ = libc.printf(b'C\\n'), libc.fflush(None)\nwait('C')\n"
        f"until = 'while ! test -e {seen}child; do sleep 0.01; done; echo last; echo wrong >&2'\n"
        "subprocess.run(['sh', '-c', 'echo child; ' + until]).returncode"
    )
    said = {"stdout": "", "stderr": ""}
    async with asyncio.timeout(60):
        async for event in stream:
            said[event.stream] += event.text
            for line in said["stdout"].split():
                (tmp_path / f"seen-{line}").touch()
    assert said == {"stdout": "C\nchild\nlast\n", "stderr": "wrong\n"}
    assert stream.result.value == 0


async def test_errors_are_structured_with_source_lines(session: Session) -> None:
    await session.execute("def divide(a):\n    return a / 0  # here")
    error = (await session.execute("divide(1)")).error
    assert error is not None
    assert (error.type, error.message) == ("ZeroDivisionError", "division by zero")
    assert "return a / 0  # here" in error.traceback
    assert '"<cell 2>", line 1' in error.traceback
    assert "holdfast" not in error.traceback
    syntax = (await session.execute("x = (")).error
    assert syntax is not None
    assert syntax.type == "SyntaxError"
    assert "holdfast" not in syntax.traceback
    assert (await session.execute("import sys; sys.exit(3)")).error.type == "SystemExit"
    assert (await session.execute("1")).value == 1


async def test_what_is_raised_where_no_cell_runs_has_no_frames_of_the_worker(
    session: Session,
) -> None:
    """As an interrupt of a library that shows a value."""
    made = "exec('class Ends:\\n    def __repr__(self):\\n        raise SystemExit(3)')"
    error = (await session.execute(f"{made}\nEnds()")).error
    assert error is not None
    assert error.type == "SystemExit"
    assert '"<string>", line 3' in error.traceback
    assert "holdfast" not in error.traceback


async def test_namespace_is_main(session: Session) -> None:
    result = await session.execute(
        "import __main__\ny = 5\n[__name__, __main__.y, globals() is vars(__main__)]"
    )
    assert result.value == ["__main__", 5, True]
    names = (await session.execute("sorted(n for n in globals() if n[:2] != '__')")).value
    assert names == ["y"]


async def test_top_level_await(session: Session) -> None:
    result = await session.execute(
        "import asyncio\nasync def twice(x):\n    await asyncio.sleep(0)\n    return 2 * x\n"
        "a = await twice(4)\nawait twice(a)"
    )
    assert result.value == 16
    assert (await session.execute("a")).value == 8


async def test_no_thread_and_no_loop_outside_a_cell(session: Session) -> None:
    result = await session.execute(
        "import sys, os\n[len(os.listdir('/proc/self/task')), 'asyncio' in sys.modules]"
    )
    assert result.value == [1, False]


async def test_input_is_answered_by_the_client(session: Session) -> None:
    async def slowly(prompt: str) -> str:
        await asyncio.sleep(0.05)
        return f"answer to {prompt}"

    first = await session.execute("input('name? ')", on_input=lambda prompt: prompt.upper())
    assert first.value == "NAME? "
    second = await session.execute("[input('a'), input('b')]", on_input=slowly)
    assert second.value == ["answer to a", "answer to b"]
    third = await session.execute("import sys\nsys.stdin.readline()", on_input=slowly)
    assert third.value == "answer to \n"
    nobody = await session.execute("input()")
    assert nobody.error is not None
    assert nobody.error.type == "EOFError"


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time\ntime.sleep(100)",
        "import asyncio\nawait asyncio.sleep(100)",
        "input('never answered')",
        "sum(i for i in iter(int, 1))",
        "import re\nre.match('(a+)+b', 'a' * 40)",
        "import threading\nthreading.Lock().acquire() and threading.Event().wait()",
        "import select\nselect.select([], [], [])",
        "import subprocess\nsubprocess.run(['sleep', '100'])",
    ],
)
async def test_interrupt(session: Session, code: str, tmp_path: Path) -> None:
    async def never(prompt: str) -> str:
        await asyncio.sleep(100)
        return ""

    begun = tmp_path / "begun"
    *imports, last = code.split("\n")
    cell = "\n".join([*imports, f"open({str(begun)!r}, 'w').close()", last])
    running = asyncio.create_task(session.execute(cell, on_input=never))
    await until(begun.exists, "the cell runs")
    await asyncio.sleep(0.3)
    started = time.monotonic()
    assert await session.interrupt()
    result = await running
    assert time.monotonic() - started < 30
    assert result.error is not None
    assert result.error.type == "KeyboardInterrupt"
    assert "holdfast" not in result.error.traceback or "input" in code
    assert (await session.execute("'alive'")).value == "alive"
    assert await session.interrupt() is False


async def test_an_interrupt_that_comes_before_its_cell_begins(session: Session) -> None:
    """The worker has the cell, and the signal, before it had a processor."""
    await session.execute("kept = 1")
    assert session.pid is not None
    os.kill(session.pid, signal.SIGSTOP)
    running = asyncio.create_task(session.execute("while True: pass"))
    await until(lambda: session._driver.busy, "the cell is on its way")
    assert await session.interrupt()
    os.kill(session.pid, signal.SIGCONT)
    result = await asyncio.wait_for(running, 60)
    assert result.error is not None
    assert result.error.type == "KeyboardInterrupt"
    assert "holdfast" not in result.error.traceback
    assert (await session.execute("kept")).value == 1


@pytest.mark.parametrize("handler", ["default_int_handler", "SIG_DFL"])
async def test_a_handler_that_a_cell_left_does_not_end_the_worker(
    session: Session, handler: str
) -> None:
    await session.execute(
        f"import signal\nkept = 1\nsignal.signal(signal.SIGINT, signal.{handler})"
    )
    assert session.pid is not None
    os.kill(session.pid, signal.SIGSTOP)
    running = asyncio.create_task(session.execute("while True: pass"))
    await until(lambda: session._driver.busy, "the cell is on its way")
    assert await session.interrupt()
    os.kill(session.pid, signal.SIGCONT)
    result = await asyncio.wait_for(running, 60)
    assert result.error is not None
    assert (result.error.type, result.execution_count) == ("KeyboardInterrupt", 2)
    assert (await session.execute("kept")).value == 1


async def test_interrupts_never_hit_the_next_cell(session: Session) -> None:
    for _ in range(30):
        running = asyncio.create_task(session.execute("x = 1"))
        await asyncio.sleep(0)
        await session.interrupt()
        first = await running
        assert first.error is None or first.error.type == "KeyboardInterrupt"
        assert (await session.execute("'next'")).value == "next"


async def test_timeout(session: Session) -> None:
    await session.execute("kept = 1")
    result = await session.execute("while True: pass", timeout=0.2)
    assert result.error is not None
    assert result.error.type == "TimeoutError"
    assert "0.2" in result.error.message
    assert (await session.execute("kept")).value == 1


async def test_cancelling_the_call_interrupts_the_cell(session: Session) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.execute("while True: pass"), 0.3)
    assert (await session.execute("1 + 1")).value == 2


async def test_a_worker_that_dies_is_an_error_of_the_running_call(session: Session) -> None:
    result = await session.execute("print('last words')\nimport os\nos.kill(os.getpid(), 9)")
    assert result.error is not None
    assert result.error.type == "WorkerDied"
    assert "SIGKILL" in result.error.message
    assert result.stdout == "last words\n"
    assert not session.alive
    for _ in range(2):
        again = (await session.execute("1")).error
        assert again is not None
        assert (again.type, again.message) == ("WorkerDied", result.error.message)
        assert "Session.resume('work')" in again.hint
    stream = session.stream("1")
    assert [event async for event in stream] == []
    assert stream.result.error.type == "WorkerDied"


@pytest.mark.parametrize("wait", [0, 0.3])
async def test_an_idle_worker_that_dies(make, wait: float) -> None:
    """Whether the host has noticed it already or not."""
    calls = [
        lambda session: session.checkpoint(),
        lambda session: session.fork("never"),
    ]
    for call in calls:
        session = await make()
        os.kill(session.pid, 9)
        await asyncio.sleep(wait)
        with pytest.raises(CaptureFailed, match="SIGKILL") as caught:
            await call(session)
        assert "Session.resume" in (caught.value.hint or "")
    session = await make("kept")
    await session.execute("x = 1")
    await session.checkpoint()
    for back in (session.restore, lambda: session.rollback(to="session/kept")):
        os.kill(session.pid, 9)
        await asyncio.sleep(wait)
        if wait:
            assert (await session.execute("x")).error.type == "WorkerDied"
        await back()
        assert (await session.execute("x")).value == 1
    os.kill(session.pid, 9)
    await asyncio.sleep(wait)
    assert (await session.execute("x")).error.type == "WorkerDied"
    assert "never" not in {summary.subject.name for summary in session.store.subjects()}


async def test_a_checkpoint_that_ends_every_worker(session: Session) -> None:
    from holdfast.session import WorkerDied

    await session.execute(
        "import os\nhost = os.getpid()\n"
        "class Trap:\n"
        "    def __setstate__(self, state):\n"
        "        if os.getppid() == state['host']: os.kill(os.getpid(), 9)\n"
        "trap = Trap()\ntrap.host = os.getppid()"
    )
    await session.checkpoint()
    with pytest.raises(WorkerDied, match="SIGKILL"):
        await session.restore()


async def test_after_shutdown(session: Session) -> None:
    await session.checkpoint()
    await session.shutdown()
    for call in (
        lambda: session.execute("1"),
        session.checkpoint,
        session.restore,
        session.rollback,
        session.fork,
    ):
        with pytest.raises(UsageError, match="the session is shut down") as caught:
            await call()
        assert "Session.resume('work')" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="shut down"):
        session.stream("1")
    assert not session.alive


async def test_starting_again_after_shutdown(session: Session) -> None:
    await session.execute("x = 1")
    await session.shutdown()
    await session.start()
    assert (await session.execute("'x' in globals()")).value is False


async def test_shutdown_while_calls_wait(session: Session) -> None:
    running = asyncio.create_task(session.execute("while True: pass"))
    waiting = asyncio.create_task(session.execute("1"))
    await asyncio.sleep(0.2)
    await session.shutdown()
    assert (await running).error is not None
    assert (await waiting).error.type == "WorkerDied"


async def test_a_worker_that_exits_by_itself(session: Session) -> None:
    result = await session.execute("import os\nos._exit(7)")
    assert result.error is not None
    assert "code 7" in result.error.message


async def test_worker_ends_with_shutdown_and_sees_no_keys(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = session.pid
    assert pid is not None
    environ = "import os\n[name for name in os.environ if name.startswith('HOLDFAST_')]"
    assert (await session.execute(environ)).value == []
    await session.shutdown()
    await session.shutdown()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    fresh = Session(store="memory://")
    with pytest.raises(UsageError):
        await fresh.execute("1")


async def test_a_worker_that_breaks_the_protocol_is_ended(session: Session) -> None:
    result = await session.execute(
        "import os, socket, stat\n"
        "for fd in map(int, os.listdir('/proc/self/fd')):\n"
        "    try:\n"
        "        if fd > 2 and stat.S_ISSOCK(os.fstat(fd).st_mode): os.write(fd, b'\\xff' * 100)\n"
        "    except OSError: continue\n"
        "import time; time.sleep(30)"
    )
    assert result.error is not None
    assert "protocol" in result.error.message


async def test_cancelling_a_call_that_waits_leaves_the_running_one_alone(
    session: Session, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    running = asyncio.create_task(session.execute(wait + "'finished'"))
    await asyncio.sleep(0.1)
    waiting = asyncio.create_task(session.execute("never = 1"))
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.wait({waiting})
    gate.touch()
    assert (await running).value == "finished"
    assert (await session.execute("'never' in globals()")).value is False


async def test_a_worker_ends_with_its_host(tmp_path: Path) -> None:
    """Even in the middle of a cell, and when the host is killed."""
    host = tmp_path / "host.py"
    host.write_text(
        "import asyncio\nfrom holdfast.session import Session\n"
        "async def main():\n"
        "    session = await Session(store='memory://').start()\n"
        "    print(session.pid, flush=True)\n"
        "    await session.execute('while True: pass')\n"
        "asyncio.run(main())\n"
    )
    source = str(Path(holdfast.__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, str(host)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    time.sleep(0.2)
    process.kill()
    process.wait()
    process.stdout.close()
    await until(lambda: not Path(f"/proc/{pid}").exists(), "the worker has ended with its host")


async def test_sessions_leave_nothing_open(make) -> None:
    await (await make()).shutdown()
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        session = await make()
        await session.execute("1")
        await session.shutdown()
    assert len(set(os.listdir("/proc/self/fd"))) <= len(before)


async def test_calls_wait_for_each_other(session: Session) -> None:
    cells = [f"seen = [*globals().get('seen', []), {i}]\nlen(seen)" for i in range(10)]
    results = await asyncio.gather(*(session.execute(cell) for cell in cells))
    assert [result.value for result in results] == list(range(1, 11))


async def test_future_imports_hold_for_later_cells(session: Session) -> None:
    await session.execute("from __future__ import annotations")
    assert (await session.execute("def f(x: nowhere): pass\nf.__annotations__")).value == {
        "x": "nowhere"
    }


async def test_starting_is_quick(make) -> None:
    moments = []
    for _ in range(3):
        started = time.perf_counter()
        await make()
        moments.append(time.perf_counter() - started)
    assert min(moments) < 1.0  # 60 ms on a quiet machine
    assert math.isfinite(min(moments))


async def test_checked_cells_raise(session: Session) -> None:
    from holdfast.session import CellFailed

    assert (await session.execute("1 + 1", check=True)).value == 2
    with pytest.raises(CellFailed, match="ZeroDivisionError: division by zero") as caught:
        await session.execute("print('before')\n1 / 0  # here", check=True)
    failed = caught.value
    assert (failed.kind, failed.error.type) == ("fault", "ZeroDivisionError")
    assert failed.result.stdout == "before\n"
    assert any("1 / 0  # here" in note for note in failed.__notes__)
    result = await session.execute("nowhere")
    with pytest.raises(CellFailed, match="nowhere"):
        result.check()
    fine = await session.execute("1")
    assert fine.check() is fine
    with pytest.raises(CellFailed, match="TimeoutError"):
        await session.execute("while True: pass", timeout=0.2, check=True)
    with pytest.raises(CellFailed, match="WorkerDied") as caught:
        await session.execute("import os\nos._exit(1)", check=True)
    assert "Session.resume('work')" in (caught.value.hint or "")


async def test_indented_cells(session: Session) -> None:
    result = await session.execute("""
        def f(a):
            if a:
                return '''one
        two'''

        f(1)
    """)
    assert result.value == "one\ntwo"
    assert (await session.execute("\tx = 1\n\tx")).value == 1
    assert (await session.execute("  # nothing\n\n")).ok
    cp = await session.checkpoint()
    await session.restore(cp)
    assert (await session.execute("f(1)")).value == "one\ntwo"
    assert (await session.execute("  x = 1\nx")).error.type == "IndentationError"
    kept = await session.execute("text = '''\n    a\n    b'''\ntext")
    assert kept.value == "\n    a\n    b"


async def test_what_is_printed(make) -> None:
    session = Session("shown", store="memory://")
    assert repr(session) == "<Session session/shown not started>"
    session = await make("shown")
    assert str(session) == f"<Session session/shown running pid {session.pid}>"
    assert repr(await session.execute("40 + 2")) == "<Result 42>"
    assert repr(await session.execute("print('a')\nobject")) == (
        "<Result <class 'object'>, stdout 'a\\n'>"
    )
    failed = await session.execute("1 / 0")
    assert repr(failed) == "<Result ZeroDivisionError: division by zero>"
    assert repr(failed.error) == "<ErrorInfo ZeroDivisionError: division by zero>"
    assert len(repr(await session.execute("print('x' * 10_000)\n'y' * 10_000"))) < 250
    cp = await session.checkpoint(reason="one")
    assert repr(cp) == (
        f"<SessionCheckpoint {cp.short} of session/shown (one): no names, {cp.size_bytes} bytes>"
    )
    await session.execute("x = 1\nz = 2\ny = __import__('sys')._getframe()")
    cp = await session.checkpoint(save_to_disk=False)
    assert "(manual): 2 exact, 1 placeholder, " in repr(cp)
    assert repr(cp).endswith(" bytes, in memory>")
    stream = session.stream("1")
    assert repr(stream).endswith(" running>")
    async for _ in stream:
        pass
    assert repr(stream).endswith(" <Result 1>>")
    await session.execute("import os\nos._exit(3)")
    assert repr(session) == "<Session session/shown ended: the worker exited with code 3>"
    await session.shutdown()
    assert repr(session) == "<Session session/shown shut down>"


@pytest.mark.parametrize(
    ("before", "at_the_end", "told"),
    [
        ("", "raise MemoryError('none left')", ": MemoryError: none left"),
        ("raise MemoryError('in a cell')", "print('no error', file=sys.stderr)", ""),
    ],
)
async def test_a_worker_that_ends_with_an_error_says_which(
    make, before: str, at_the_end: str, told: str
) -> None:
    session = await make("broken")
    await session.execute(before)
    await session.execute(
        "import os, sys, traceback\n"
        f"try:\n    {at_the_end}\n"
        "except BaseException:\n    traceback.print_exc()\n"
        "sys.stderr.flush()\nos._exit(1)"
    )
    assert repr(session) == (f"<Session session/broken ended: the worker exited with code 1{told}>")


async def test_a_password_is_asked_for_as_one(session: Session) -> None:
    """Also by the first question of a session, and by a name that came back."""
    asked: list[bool] = []

    def answer(prompt: Prompt) -> str:
        asked.append(prompt.password)
        return "pearl"

    code = "from getpass import getpass\nimport getpass as module\ngetpass()"
    assert (await session.execute(code, on_input=answer)).value == "pearl"
    await session.restore(await session.checkpoint())
    again = await session.execute("getpass(), getpass is module.getpass", on_input=answer)
    assert again.value == ("pearl", True)
    assert asked == [True, True]


async def test_stdin_is_read_in_pieces(session: Session) -> None:
    code = (
        "import sys\n"
        "[sys.stdin.read(2), sys.stdin.readline(1), sys.stdin.readline(), sys.stdin.read(6),\n"
        " input(), sys.stdin.readline(0), sys.stdin.read()]"
    )
    lines = iter(["abcd", "efgh", "ijkl", "last"])
    result = await session.execute(code, on_input=lambda prompt: next(lines, None))
    assert result.value == ["ab", "c", "d\n", "efgh\ni", "jkl", "", "last\n"]
