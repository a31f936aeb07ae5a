"""What every test shares: a home of its own, and no deadlines on a noisy machine."""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import gc
import inspect
import os
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from holdfast.testing.servers import SeaweedServer, Server

# The tests start thousands of processes, and several workers read all of the tests: what one of
# them has compiled, the next one should find, though an environment may say otherwise.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What a shell runs in the background ignores Ctrl-C, and so would all that is started here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples are slow now and then where two cores are shared; pytest-timeout catches real hangs.
settings.register_profile("holdfast", deadline=None, print_blob=True)
settings.load_profile("holdfast")


_TO_END = 180.0  # seconds that a test whose time is up has for the ends of its fixtures
_stderr = pytest.StashKey[int]()
_failed = pytest.StashKey[bool]()
AsyncTest = Callable[..., Awaitable[None]]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_stderr] = os.dup(2)  # nothing is captured yet


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that hangs for good ends its worker, and says where it stood: pytest-timeout raises an
    error once, and a fixture that waits after that in its own end would wait for ever."""
    _end_later(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    if isinstance(node, pytest.Item):
        _end_later(node)  # pytest itself cancels it at an error, lest it disturbs a debugger


def _end_later(item: pytest.Item) -> None:
    fd = item.config.stash[_stderr]
    faulthandler.dump_traceback_later(_limit(item) + _TO_END, exit=True, file=fd)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """An asynchronous test that hangs is ended by its own loop, too: pytest-timeout raises once, in
    whatever runs just then, and a loop keeps errors of callbacks and of other tasks to itself."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.obj = _ending(item.obj, _limit(item))
    return (yield)


def _ending(test: AsyncTest, seconds: float) -> AsyncTest:
    @functools.wraps(test)
    async def ending(**arguments: object) -> None:
        async with asyncio.timeout(seconds):
            await test(**arguments)

    return ending


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Nothing is collected while a failure is told: a task that failed unseen would be told of in
    the middle of it. Both parse code, and where Python 3.11 does so within doing so, pytest ends
    with an error of its own (gh-106905). So they are told of as soon as the test is over, by a
    collection that no other can begin within."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        report = yield
        item.stash[_failed] = report.failed or item.stash.get(_failed, False)
        if call.when == "teardown" and item.stash[_failed]:
            gc.collect()
        return report
    finally:
        if collecting:
            gc.enable()


def _limit(item: pytest.Item) -> float:
    """How long a test may take, in seconds."""
    marker = item.get_closest_marker("timeout")
    limit = marker.args[0] if marker else item.config.getvalue("timeout")
    return float(limit or item.config.getini("timeout"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What failed, a line each and last of all: pytest's own summary prints whole messages on a
    CI machine, and one long difference there pushes every other name out of sight."""
    broken = [
        (outcome, report)
        for outcome in ("failed", "error")
        for report in terminalreporter.stats.get(outcome, [])
    ]
    if broken:
        terminalreporter.section("what failed")
    for outcome, report in broken:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = (crash.message if crash else str(report.longrepr)).strip()
        first = message.partition("\n")[0][:160]
        terminalreporter.write_line(f"{outcome.upper()} {report.nodeid} - {first}")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent


Progress = Callable[[int, int], None]  # so many done, of so many
_EVERY = 15.0  # seconds


@pytest.fixture
def progress(request: pytest.FixtureRequest) -> Progress:
    """Tells a person who waits for a long test how far it is, past pytest's capturing."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    begun = said = time.monotonic()

    def say(done: int, total: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= _EVERY:
            said = now
            left = (now - begun) * (total - done) / max(1, done) / 60
            with capture.global_and_fixture_disabled():
                print(
                    f"\n  {request.node.name}: {done} of {total}, about {left:.0f} min left",
                    file=sys.stderr,
                    flush=True,
                )

    return say


@pytest.fixture(autouse=True)
def holdfast_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """`HOLDFAST_HOME`, new for each test, so that none touches the user's own checkpoints."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    for name in (
        "HOLDFAST_STORE",
        "HOLDFAST_KEY",
        "HOLDFAST_KEY_FILE",
        "HOLDFAST_TOKEN",
        "HOLDFAST_PASSPHRASE",
        "HOLDFAST_PASSPHRASE_FILE",
        "HOLDFAST_ENCRYPTION_KEY_FILE",
    ):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real object store; it has a bucket of any name that is written to."""
    server = SeaweedServer(tmp_path_factory.mktemp("seaweed"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def prefix() -> str:
    """A part of the bucket that is this test's own."""
    return secrets.token_hex(8)


@pytest.fixture
def on_s3(s3: Server, prefix: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new store in a real object store, for whoever this process starts, too."""
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    return f"s3://bucket/{prefix}"
