"""A plug-in of pytest: tests run again, with another process between any two of their steps.

`-p tests.survival.plugin --survive session,state`; no test knows of it. `--survive-seconds` takes
only as many tests as fit, in an order that `--survive-seed` decides.
"""

from __future__ import annotations

import random
import secrets
import time
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from tests.survival.count import Count
from tests.survival.sessions import Crossings
from tests.survival.states import Relays

LEVELS = {"state": Relays, "session": Crossings}
KINDS = ("tests", "faults", "unseen")  # where the reason lies, as far as somebody knows it
EXCEPTIONS = Path(__file__).with_name("exceptions.toml")


def exceptions() -> list[dict[str, str]]:
    """The tests that are left out, each with its reason: those of all three kinds."""
    listed = tomllib.loads(EXCEPTIONS.read_text())
    return [entry for kind in KINDS for entry in listed.get(kind, [])]


def is_of(test: str, pattern: str) -> bool:
    """Whether a test's id is one that a pattern of the list means. Brackets are only brackets."""
    return fnmatchcase(test, pattern.replace("[", "[[]"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("survival")
    group.addoption(
        "--survive",
        default="",
        help=f"levels, with commas: {', '.join(LEVELS)}; each step is taken in another process",
    )
    group.addoption("--survive-seed", type=int, help="decides the order of the tests")
    group.addoption("--survive-seconds", type=float, help="begin no test after so many")


def pytest_configure(config: pytest.Config) -> None:
    counts = {name: Count() for name in config.getoption("--survive").split(",") if name}
    config.stash[_counts] = counts
    for name, count in counts.items():
        if name not in LEVELS:
            raise pytest.UsageError(f"--survive: {name!r} is none of {', '.join(LEVELS)}")
        LEVELS[name](count).begin()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.stash[_counts]:
        return
    patterns = [each["test"] for each in exceptions()]
    # What measures time is about one process.
    out = [
        item
        for item in items
        if item.get_closest_marker("alone") or any(is_of(item.nodeid, each) for each in patterns)
    ]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]
    if config.getoption("--survive-seconds") is not None:
        given = config.getoption("--survive-seed")
        seed = secrets.randbelow(10**6) if given is None else given
        config.stash[_seed] = seed
        random.Random(seed).shuffle(items)


def pytest_runtestloop(session: pytest.Session) -> None:
    session.config.stash[_begun] = time.monotonic()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """True for a test that does not fit any more: nothing else is done with it."""
    seconds = item.config.getoption("--survive-seconds")
    late = seconds is not None and time.monotonic() - item.config.stash[_begun] > seconds
    return True if late else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    for count in item.config.stash[_counts].values():
        count.next_test()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    config = terminalreporter.config
    if _seed in config.stash:
        terminalreporter.write_line(f"survival, --survive-seed {config.stash[_seed]}")
    for name, count in config.stash[_counts].items():
        terminalreporter.write_line(f"survival, {name}: {count}")


_counts = pytest.StashKey[dict[str, Count]]()
_seed = pytest.StashKey[int]()
_begun = pytest.StashKey[float]()
