"""The overview: quick, complete and true."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import click
import pytest

from holdfast.cli.main import VERBS, cli

HOLDFAST = Path(sys.executable).with_name("holdfast")
ROUNDS = 15
LIMIT = 6.0


def seconds(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


@pytest.mark.alone
def test_help_answers_within_six_times_a_bare_interpreter() -> None:
    bare, help_ = [], []
    for _ in range(ROUNDS):  # turn by turn, so that a noisy neighbour disturbs both
        bare.append(seconds(sys.executable, "-c", "pass"))
        help_.append(seconds(str(HOLDFAST), "--help"))
    ratio = statistics.median(help_) / statistics.median(bare)
    print(f"--help takes {ratio:.1f} times a bare interpreter")
    assert ratio <= LIMIT


def test_the_overview_imports_no_command_and_nothing_heavy() -> None:
    code = (
        "import sys; from holdfast.cli.main import main; main(['--help'])\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stderr.split())
    assert not loaded & {"rich", "numpy", "msgspec", "asyncio", "json", "tomllib", "holdfast.store"}
    verbs = {f"holdfast.cli.{module}" for module, _ in VERBS.values()}
    assert not loaded & verbs


@pytest.mark.parametrize("verb", VERBS)
def test_the_table_says_what_the_command_says(verb: str) -> None:
    module, line = VERBS[verb]
    command = import_module(f"holdfast.cli.{module}").command
    assert isinstance(command, click.Command)
    assert command.name == verb
    assert (command.help or "").strip().splitlines()[0] == line


def test_every_command_takes_the_shared_options() -> None:
    context = click.Context(cli)
    for verb in VERBS:
        command = cli.get_command(context, verb)
        assert command is not None
        again = cli.get_command(context, verb)
        assert again is command
        names = [name for param in command.params for name in param.opts]
        assert names.count("--json") == names.count("--store") == 1
