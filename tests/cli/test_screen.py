"""`holdfast run` at a terminal: the script's lines stay whole, above a bar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from tests.cli.person import Person

GONE = re.escape("\x1b[1A\x1b[2K")  # the bar's line is taken away, and the cursor stands there

Watch = Callable[[str], "pexpect.spawn[str]"]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Somebody runs a script and watches it."""
    begun: list[Person] = []

    def call(text: str) -> pexpect.spawn[str]:
        script = tmp_path / "script.py"
        script.write_text(text)
        begun.append(Person("run", "work", str(script), term="xterm"))
        return begun[-1].child

    yield call
    for person in begun:
        person.leaves()


def test_lines_stay_whole_above_the_bar(watch: Watch, tmp_path: Path) -> None:
    gates = [tmp_path / name for name in "ab"]
    wait = "while not os.path.exists({0!r}): time.sleep(0.01)\n"
    child = watch(
        "# %% one\nimport os, sys, time\nprint('row', 0, 'value', 0)\n"
        "# %% two\n" + wait.format(str(gates[0])) + "print('half', end=' ', flush=True)\n"
        + wait.format(str(gates[1])) + "print('line')\n"
        "# %% three\nprint('x' * 150)\nprint('wrong', file=sys.stderr)\n"
    )  # fmt: skip
    child.expect(rf"{GONE}row 0 value 0\r\n")
    child.expect("1/3")
    gates[0].touch()
    child.expect(rf"{GONE}half $")  # seen before its line is ended, and no bar after it
    gates[1].touch()
    child.expect("line\r\n")
    child.expect("x{150}\r\n")
    child.expect("wrong\r\n")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_a_question_has_its_own_line(watch: Watch) -> None:
    child = watch(
        "# %%\nimport getpass\nprint('hello', input('who? '))\n"
        "# %%\nprint(len(getpass.getpass('word? ')))\n"
    )
    child.expect("0/2")
    child.expect(rf"{GONE}who\? $")
    with pytest.raises(pexpect.TIMEOUT):  # no bar is drawn over it
        child.expect(".", timeout=0.3)
    child.send("me\r")
    child.expect("me\r\n")
    child.expect("hello me\r\n")
    child.expect(r"word\? $")
    child.send("hidden\r")
    child.expect(r"\n6\r\n")
    assert "hidden" not in child.before
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
