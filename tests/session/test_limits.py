"""Wrong arguments, workers that are stopped or stuck, and floods: no call waits for ever."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time

import pytest

from holdfast.model.errors import BadInput, CaptureFailed
from holdfast.session import Session, driver
from holdfast.session.execution import OUTPUT_LIMIT, Execution
from holdfast.session.output import Early
from holdfast.testing.waiting import until

LOOPS = """
class Loops:
    def __reduce__(self):
        while GATE: pass
        return Loops, ()
GATE = True
loops = Loops()
x = [1]
"""


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """For those who never react. Others, on a machine that stands still, need their time."""
    monkeypatch.setattr(driver, "GRACE", 1.0)


async def value(session: Session, code: str) -> object:
    result = await session.execute(code)
    assert result.error is None, result.error.traceback
    return result.value


@pytest.mark.parametrize(
    "options",
    [
        {"reason": 5},
        {"reason": None},
        {"reason": "\udcff"},
        {"stage": 3},
        {"stage": "\udcff"},
        {"save_to_disk": "yes"},
        {"timeout": "soon"},
        {"timeout": float("nan")},
    ],
)
async def test_wrong_arguments_of_a_checkpoint(session: Session, options) -> None:
    await session.execute("x = 1")
    with pytest.raises(BadInput):
        await session.checkpoint(**options)
    assert await value(session, "x") == 1


@pytest.mark.parametrize("code", [5, b"1", None, "\udcff", "x" * (64 << 20)])
async def test_code_that_is_no_text(session: Session, code) -> None:
    await session.execute("x = 1")
    with pytest.raises(BadInput):
        await session.execute(code)
    with pytest.raises(BadInput):
        session.stream(code)
    with pytest.raises(BadInput):
        await session.execute("1", timeout="soon")
    assert await value(session, "x") == 1


@pytest.mark.parametrize(
    "secrets", [{"port": 5}, {5: "a"}, {"a": None}, {"a": "\udcff"}, {"\udcff": "a"}, ["a"]]
)
async def test_secrets_that_are_no_texts(session: Session, secrets) -> None:
    await session.execute("x = 1")
    await session.checkpoint()
    await session.execute("x = 2")
    head = await session.list()
    with pytest.raises(BadInput):
        await session.restore(secrets=secrets)
    with pytest.raises(BadInput):
        await session.rollback(secrets=secrets)
    with pytest.raises(BadInput):
        Session("other", secrets=secrets)
    assert await value(session, "x") == 2
    assert await session.list() == head


def test_a_limit_that_is_no_number() -> None:
    for limit in ("5", -1, 1.5, True):
        with pytest.raises(BadInput):
            Session("other", max_item_bytes=limit)


@pytest.mark.parametrize("answer", ["\udcff", 5, b"a"])
async def test_an_answer_that_is_no_text_is_an_error_of_the_cell(session: Session, answer) -> None:
    result = await session.execute("input()", on_input=lambda _: answer, timeout=20)
    assert result.error is not None
    assert result.error.type == "ValueError"
    assert "answer to input()" in result.error.message


async def test_a_capture_that_takes_too_long(session: Session) -> None:
    await session.execute(LOOPS)
    with pytest.raises(CaptureFailed, match=r"longer than 0\.3 s; the session is as it was"):
        await session.checkpoint(timeout=0.3)
    assert await value(session, "GATE = False\nx") == [1]
    assert (await session.checkpoint()).report["x"].outcome == "exact"


async def test_a_capture_is_interrupted(session: Session) -> None:
    await session.execute(LOOPS)
    capture = asyncio.create_task(session.checkpoint())
    await asyncio.sleep(0.3)
    assert await session.interrupt() is True
    with pytest.raises(CaptureFailed, match="KeyboardInterrupt"):
        await capture
    assert await session.interrupt() is False
    assert await value(session, "x") == [1]


async def test_a_capture_that_swallows_its_interrupt_fails_as_well(session: Session) -> None:
    await session.execute(
        "class Swallows:\n    def __reduce__(self):\n        try:\n            while True: pass\n"
        "        except BaseException: return Swallows, ()\nx, s = 1, Swallows()"
    )
    with pytest.raises(CaptureFailed, match="longer"):
        await session.checkpoint(timeout=0.3)
    assert await value(session, "x") == 1


async def test_cancelling_a_checkpoint_ends_it(session: Session, store) -> None:
    await session.execute(LOOPS)
    capture = asyncio.create_task(session.checkpoint())
    await asyncio.sleep(0.3)
    started = time.monotonic()
    capture.cancel()
    with pytest.raises(asyncio.CancelledError):
        await capture
    assert time.monotonic() - started < 30
    assert store.head("session/work") is None
    assert await value(session, "x") == [1]


async def test_a_restore_that_takes_too_long(session: Session) -> None:
    await session.execute(
        "import os\nclass Slow:\n    def __init__(self): self.x = 1\n"
        "    def __setstate__(self, state):\n"
        "        while 'HOLDFAST_GATE' in os.environ: pass\n"
        "slow = Slow()\nx = [1]"
    )
    cp = await session.checkpoint()
    await session.execute("os.environ['HOLDFAST_GATE'] = '1'\nx = [2]\ny = x")
    with pytest.raises(CaptureFailed, match="the restore took longer"):
        await session.restore(cp, timeout=0.3)
    assert await value(session, "[x, y is x]") == [[2], True]
    await session.execute("del os.environ['HOLDFAST_GATE']")
    await session.restore(cp, timeout=20)
    assert await value(session, "x") == [1]


@pytest.mark.usefixtures("short_grace")
async def test_a_stopped_worker_is_not_waited_for(session: Session) -> None:
    await session.execute("x = [1]\nbig = bytes(8 << 20)")
    cp = await session.checkpoint()
    await session.execute("x = [2]")
    assert session.pid is not None
    os.kill(session.pid, signal.SIGSTOP)
    with pytest.raises(CaptureFailed, match="did not react"):
        await session.checkpoint(timeout=0.2)
    with pytest.raises(CaptureFailed, match="did not react"):
        await session.restore(cp, timeout=0.2)
    cancelled = asyncio.create_task(session.checkpoint())
    await asyncio.sleep(0.1)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(cancelled, 10)
    # Nothing that was given up happens when it goes on: the session is as it was.
    os.kill(session.pid, signal.SIGCONT)
    assert await value(session, "x") == [2]
    await session.restore(cp)
    assert await value(session, "x") == [1]


@pytest.mark.usefixtures("short_grace")
async def test_a_stopped_worker_and_a_long_cell(session: Session) -> None:
    assert session.pid is not None
    os.kill(session.pid, signal.SIGSTOP)
    cell = "x = 1 #" + "a" * (8 << 20)
    result = await asyncio.wait_for(session.execute(cell, timeout=0.2), 20)
    assert result.error is not None
    assert result.error.type == "TimeoutError"
    assert not session.alive


@pytest.mark.usefixtures("short_grace")
async def test_a_stopped_worker_is_shut_down(session: Session) -> None:
    assert session.pid is not None
    os.kill(session.pid, signal.SIGSTOP)
    running = session.stream("x = 1 #" + "a" * (8 << 20))
    await asyncio.sleep(0.1)
    await asyncio.wait_for(session.shutdown(), 20)
    assert not session.alive
    async for _ in running:
        pass
    assert running.result.error is not None


async def test_a_worker_that_became_another_program(session: Session) -> None:
    result = await asyncio.wait_for(
        session.execute("import os\nos.execvp('sleep', ['sleep', '1000'])"), 20
    )
    assert result.error is not None
    assert (result.error.type, result.error.message) == (
        "WorkerDied",
        "the worker closed its control socket and was killed",
    )


async def test_a_flood_between_cells_is_bounded(session: Session) -> None:
    await session.execute("import subprocess\nflood = subprocess.Popen(['yes', 'a' * 1000])")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await asyncio.sleep(1.5)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 << 10  # KiB
    await until(lambda: session._driver._early.dropped > 0, "more has come than is kept")
    result = await asyncio.wait_for(session.execute("flood.kill()\nflood.wait()"), 20)
    assert result.error is None
    assert result.truncated
    assert "characters written before this cell are lost]" in result.stderr


def test_early_output_drops_the_oldest() -> None:
    early = Early(limit=3 * 1256)
    for letter in "abcde":
        early.add("stdout", letter * 1000)
    assert early.dropped == 2000
    assert [text[0] for _, text in early.take()] == ["c", "d", "e"]
    assert (early.take(), early.dropped) == ([], 0)


async def test_a_worker_is_not_handed_the_keys(make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_KEY", "HOLDFAST_KEY_FILE", "HOLDFAST_TOKEN"):
        monkeypatch.setenv(name, "k")
    session = await make("keyless")
    code = "import os\n[name for name in os.environ if name.startswith('HOLDFAST_')]"
    assert await value(session, code) == []


# -- memory and CPU time ------------------------------------------------------------------


async def test_a_memory_limit_is_an_error_of_the_cell(make) -> None:
    session = await make("small", memory_limit=256 << 20)
    result = await session.execute("big = bytearray(400 << 20)")
    assert result.error is not None
    assert result.error.type == "MemoryError"
    assert await value(session, "fits = bytearray(50 << 20)\nlen(fits)") == 50 << 20
    result = await session.execute("rows = []\nwhile True: rows.append(bytes(1 << 20))")
    assert result.error is not None
    assert result.error.type == "MemoryError"
    assert await value(session, "del rows\nlen(fits)") == 50 << 20
    result = await session.execute("rows = []\nwhile True: rows.append([object()])")
    assert result.error is not None
    assert result.error.type == "MemoryError"
    assert await value(session, "del rows\nlen(fits)") == 50 << 20


async def test_a_capture_may_use_more_than_the_limit(make) -> None:
    session = await make("small", memory_limit=256 << 20)
    await session.execute("import os\nbig = os.urandom(100 << 20)\nkept = big[:5]")
    cp = await session.checkpoint()
    await session.restore(cp)
    assert await value(session, "big[:5] == kept") is True
    # And the next cell has its limit again, whatever the code did about it.
    await session.execute(
        "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (1 << 40, 1 << 60))"
    )
    assert (await session.execute("bytearray(400 << 20)")).error.type == "MemoryError"


async def test_a_limit_of_cpu_time_is_for_each_cell(make) -> None:
    session = await make("busy", cpu_limit=0.4)
    for _ in range(2):
        result = await session.execute("while True: pass", timeout=60)
        assert result.error is not None
        assert result.error.type == "CpuTimeExceeded"
        assert "0.4 s" in result.error.message
    # Waiting is not computing.
    assert await value(session, "import time\ntime.sleep(0.8)\n'waited'") == "waited"
    # Nor is a timeout mistaken for it, however late the host comes to look.
    waits = "while True: time.sleep(0.01)"
    assert (await session.execute(waits, timeout=0.1)).error.type == "TimeoutError"


@pytest.mark.usefixtures("short_grace")
async def test_a_cell_that_ignores_its_limit_loses_its_worker(make) -> None:
    session = await make("stubborn", cpu_limit=0.2)
    await session.execute("x = 1")
    await session.checkpoint()
    result = await session.execute(
        "def spin():\n    while True: pass\n"
        "while True:\n    try: spin()\n    except BaseException: pass"
    )
    assert result.error is not None
    assert result.error.type == "CpuTimeExceeded"
    assert "killed" in result.error.message
    assert await value(session, "x") == 1


@pytest.mark.parametrize(
    "options",
    [{"memory_limit": 5}, {"memory_limit": "1G"}, {"cpu_limit": 0}, {"cpu_limit": "1"}],
)
def test_limits_that_are_none(options) -> None:
    with pytest.raises(BadInput):
        Session("other", **options)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"name": 5}, "name"),
        ({"name": b"a"}, "name"),
        ({"name": ""}, "name"),
        ({"fresh": "yes"}, "fresh"),
        ({"on_input": "Ada"}, "on_input"),
        ({"python": 3}, "python"),
        ({"cwd": "a\0b"}, "cwd"),
        ({"env": {"A": 1}}, "env"),
        ({"store": 5}, "store"),
        ({"store": b"memory://"}, "store"),
    ],
)
async def test_a_session_made_with_something_else(options, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        await Session(**{"name": "a", **options}).start()


async def test_references_that_are_none(session: Session) -> None:
    await session.execute("x = 1")
    await session.checkpoint()
    for wrong in (5, b"a", [], object(), True):
        for call in (session.restore, session.rollback, session.show, session.diff):
            with pytest.raises(BadInput, match="checkpoint"):
                await call(wrong)
    assert await value(session, "x") == 1
    with pytest.raises(BadInput):
        await session.fork(5)
    with pytest.raises(BadInput):
        await Session.resume(5, store="memory://")


async def test_a_worker_that_cannot_be_started(tmp_path) -> None:
    from holdfast.model.errors import HoldfastError

    for options in ({"python": str(tmp_path / "nowhere")}, {"cwd": tmp_path / "nowhere"}):
        with pytest.raises(HoldfastError, match="can be started"):
            await Session(store="memory://", **options).start()
    false = Session(store="memory://", python="/bin/false")
    with pytest.raises(HoldfastError, match="did not start"):
        await false.start()


async def test_output_over_the_limit_has_no_hole() -> None:
    execution = Execution(1)
    for size in (OUTPUT_LIMIT - 3, 10, 2):
        execution.output("stdout", str(size % 10) * size)
    execution.fail("Told", "why")
    said = execution.result.stdout
    assert len(said) == OUTPUT_LIMIT
    assert said.endswith("000")  # what came first of the piece that did not fit, and nothing else
    assert execution.result.truncated
