"""`holdfast repl`: a prompt that survives, typed at through a real terminal and through a pipe."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from tests.cli.conftest import Run
from tests.cli.person import COLOUR, SGR, Person

PROMPT = r"\[\d+\] "


@pytest.fixture
def people() -> Iterator[list[Person]]:
    them: list[Person] = []
    yield them
    for person in them:
        person.leaves()


def sit_down(people: list[Person], *arguments: str, term: str = "dumb") -> Person:
    person = Person("repl", *arguments, term=term)
    people.append(person)
    return person


def test_type_kill_resume_roll_back_and_fork(people: list[Person], program: Run) -> None:
    first = sit_down(people, "work")
    first.sees(r"session/work, new")
    first.sees(PROMPT)
    first.types("rows = [3, 1, 2]")
    first.sees(r"\[2\] ")
    first.types("def largest():", "return max(rows)", "")
    first.sees(r"\[3\] ")
    first.types("largest()")
    first.sees(r"\n3\r")
    first.sees(r"\[4\] ")
    first.types("import socket; line = socket.create_server(('127.0.0.1', 0))")
    first.sees(r"\[5\] ")
    first.types("%log")
    first.sees(r"cell 4")
    os.kill(first.child.pid, 9)
    first.child.wait()

    second = sit_down(people, "work")
    second.sees(r"session/work, from \w{8} \(cell 4\)")
    second.sees(r"came back: .*largest")
    second.sees(r"line did not come back")
    second.sees(r"\[5\] ")
    second.types("rows.clear()")
    second.sees(r"\[6\] ")
    second.types("%rollback")
    second.sees(r"now at \w{8}: rollback")
    second.sees(r"\[5\] ")
    second.types("rows")
    second.sees(r"\[3, 1, 2\]")
    second.types("%fork other")
    second.sees(r"session/other is there")
    second.types("%whos")
    second.sees(r"rows +list +3 items +\d+ B +exact")
    second.sees(r"largest +function .*rebuilt")
    # What is typed before the terminal is ours again may be lost, so it is typed until it is heard.
    for _ in range(20):
        second.child.sendeof()
        if second.child.expect([r"session/work is kept", pexpect.TIMEOUT], timeout=2) == 0:
            break
    else:
        pytest.fail("Ctrl-D did not end the prompt")
    second.child.expect(pexpect.EOF)

    forked = program("repl", "other", stdin="rows\n")
    assert forked.out == "[3, 1, 2]\n"


UP, DOWN, LINE_START, LINE_END, KILL_LINE = "\x1b[A", "\x1b[B", "\x01", "\x05", "\x0b"


def test_colours_editing_and_history_at_a_terminal(people: list[Person]) -> None:
    first = sit_down(people, "work", term="xterm-256color")
    first.sees(r"\[1\] ")
    first.child.send("def ")
    first.sees(COLOUR + "def")  # while it is typed
    first.types("once(n):")
    first.child.send("return n * 2")
    first.sees("return")
    first.child.send(UP + LINE_START + KILL_LINE + "def twice(n):" + DOWN + LINE_END)
    first.types("", "")  # the empty line that ends a block
    first.sees(r"\[2\] ")
    first.types("twice(21)")
    first.sees(r"42\r\n")
    first.sees(r"\[3\] ")
    first.types("%log")
    first.sees("cell 2")  # now it is durable
    os.kill(first.child.pid, 9)
    first.child.wait()

    second = sit_down(people, "work", term="xterm-256color")
    second.sees(r"came back: twice")
    second.sees(r"\[3\] ")
    second.types(UP + UP)
    second.sees(r"42\r\n")
    second.sees(r"\[4\] ")
    second.child.send(UP * 4)  # a cell of several lines comes back whole
    second.sees("def.* .*twice")
    second.sees("return")
    second.types("")
    second.sees(r"\[5\] ")


def test_variables_with_what_changed_at_a_terminal(people: list[Person]) -> None:
    person = sit_down(people, "work", term="xterm-256color")
    person.sees(r"\[1\] ")
    person.types("rows, same = [1], 'same'; f = lambda: 1")
    person.sees(r"\[2\] ")
    person.types("rows.append(2)")
    person.sees(r"\[3\] ")
    person.types("%whos")
    person.sees("CHANGED")
    person.sees(r"\[3\] ")
    shown = re.sub(SGR, "", str(person.child.before))
    assert re.search(r"rows +list +2 items +\d+ B +exact +changed", shown)
    assert re.search(r"f +function +\d+ B +rebuilt", shown)
    assert re.search(r"same +str .*exact +\r", shown)
    person.types("%restore ~1")
    person.sees(r"now at \w{8}: cell 1")
    person.sees(r"3 names came back: ")
    person.types("rows")
    person.sees(r"\[1\]\r\n")


def test_who_owns_a_running_session_is_told(people: list[Person], program: Run) -> None:
    owner = sit_down(people, "work")
    owner.sees(PROMPT)
    owner.types("x = 1")
    owner.sees(r"\[2\] ")
    told = program("repl", "work")
    assert told.code == 4
    assert "session/work is in use by" in told.err
    owner.types("x")
    owner.sees(r"\n1\r")


def test_a_checkpoint_from_another_terminal(people: list[Person], program: Run) -> None:
    owner = sit_down(people, "work")
    owner.sees(r"\[1\] ")
    owner.types("x = 1")
    owner.sees(r"\[2\] ")
    made = program("checkpoint", "session/work", "--reason", "from outside", "--json")
    assert made.code == 0, made.err
    assert made.json["checkpoint"]["reason"] == "from outside"
    owner.types("%log")
    owner.sees("from outside")
    os.kill(owner.child.pid, 9)
    owner.child.wait()
    gone = program("checkpoint", "session/work")
    assert gone.code == 5
    assert "nothing that runs session/work can be reached" in gone.err


def test_ctrl_c_stops_the_cell_and_not_the_prompt(people: list[Person]) -> None:
    person = sit_down(people)
    person.sees(PROMPT)
    person.types("import time; print('begun'); time.sleep(60)")
    person.sees(r"\nbegun")
    person.child.sendintr()
    person.sees("KeyboardInterrupt")
    person.sees(PROMPT)
    person.child.send("half a li")
    person.child.sendintr()
    person.sees(PROMPT)
    person.types("input('who? ')")
    person.sees(r"\nwho\? ")
    person.types("me")
    person.sees(r"'me'\r")


def test_ctrl_d_while_a_cell_runs_leaves_after_it(people: list[Person]) -> None:
    person = sit_down(people, "early")
    person.sees(r"\[1\] ")
    person.types("import time; print('be' + 'gun', flush=True); time.sleep(1)")
    person.sees("begun")
    person.child.send("\x04")
    person.sees("session/early is kept")
    person.child.expect(pexpect.EOF)


def test_names_are_completed(people: list[Person]) -> None:
    person = sit_down(people)
    person.sees(PROMPT)
    person.types("import statistics")
    person.sees(r"\[2\] ")
    person.child.send("statistics.fme")
    person.sees("fme")
    person.child.send("\t")
    person.sees("n")  # of `fmean`: all that a dumb terminal shows of it
    person.types("([1, 3])")
    person.sees(r"\n2\.0\r")


def test_through_a_pipe(program: Run) -> None:
    done = program(
        "repl",
        "piped",
        stdin="x = 2\nfor n in range(x):\n    print(n)\n\nx * 21\n1 / 0\n%nope\n'end'\n",
    )
    assert done.code == 0
    assert done.out == "0\n1\n42\n'end'\n"
    assert "ZeroDivisionError" in done.err
    assert "there is no %nope" in done.err
    assert program("repl", "piped", "--fresh", stdin="x\n").err.count("NameError") == 1


def test_a_worker_that_dies_at_the_prompt(program: Run) -> None:
    die = "import os; os._exit(3)\n"
    done = program("repl", "work", stdin=f"x = 41\n{die}x + 1\n{die}%log\nx\n")
    assert done.out.startswith("42\n")
    assert done.err.count("hint: the next cell goes on from the last checkpoint") == 2
    assert "Session.resume" not in done.err
    first, second = re.findall(r"brought back from (\w{8}) \(cell \d\)", done.err)
    for each, reason in ((first, "cell 1"), (second, "cell 2")):
        shown = program("show", each, "--json")
        assert shown.code == 0, shown.err
        assert shown.json["checkpoint"]["reason"] == reason
    alone = program("repl", "other", stdin=f"{die}1\n")
    assert "hint: nothing was checkpointed yet; leave, and holdfast repl other" in alone.err
    assert "Session.resume" not in alone.err
    assert "is kept" not in alone.err


def test_nothing_is_kept_of_nothing(program: Run) -> None:
    done = program("repl", "empty", stdin="\n")
    assert done.code == 0
    assert done.err == "session/empty, new; %help lists the commands\n"
    assert "is kept" in program("repl", "empty", stdin="x = 1\n").err
    assert "is kept" in program("repl", "empty", stdin="").err


def test_a_session_of_somebody_else(program: Run, tmp_path: Path) -> None:
    file, other = str(tmp_path / "work.holdfast"), {"HOLDFAST_HOME": str(tmp_path / "other")}
    assert program("repl", "work", stdin="x = 41\n").code == 0
    assert program("export", "session/work", file).code == 0
    assert program("import", file, environ=other).code == 0
    refused = program("repl", "work", stdin="x\n", environ=other)
    assert (refused.code, "--trust" in refused.err) == (8, True)
    trusted = program("repl", "work", "--trust", stdin="x + 1\n", environ=other)
    assert (trusted.code, trusted.out) == (0, "42\n")
    assert program("repl", "work", stdin="x\n", environ=other).out == "41\n"  # ours since


def test_commands_of_the_prompt(program: Run) -> None:
    program("repl", "w", stdin="a = 1\n")
    done = program(
        "repl", "w", stdin="a = 2\n%checkpoint before lunch\n%log\na = 3\n%diff\n%help\n%quit\na\n"
    )
    assert re.search(r"● +\w{8} +before lunch", done.out)
    assert re.search(r"a +changed", done.out)
    assert "%rollback [ID]" in done.out
    assert not done.out.endswith("3\n")
    wrong = program("repl", "w", stdin="%fork\n%diff 1 2 3\n%rollback nothing\n%roll\n%log 'x\n")
    assert wrong.err.count("error: ") == 5
    assert "did you mean %rollback?" in wrong.err


def test_lines_of_ipython_say_where_they_work(program: Run) -> None:
    done = program("repl", "w", stdin="a = 1\na?\n!ls\n%timeit a\n%matplotlib inline\na\n")
    assert done.out == "1\n"
    assert done.err.count("HOLDFAST_SESSION=w ipython --ext holdfast") == 4
    assert "SyntaxError" not in done.err
    assert "help(a)" in done.err


@pytest.mark.parametrize("word", ["exit", "quit()"])
def test_leaving_as_python_does(program: Run, word: str) -> None:
    done = program("repl", "w", stdin=f"a = 1\n{word}\nprint('still here')\n")
    assert (done.code, done.out) == (0, "")


def test_the_history_is_private(people: list[Person], holdfast_home: Path) -> None:
    person = sit_down(people)
    person.sees(PROMPT)
    person.types("secret_word = 1")
    person.sees(r"\[2\] ")
    history = holdfast_home / "repl-history"
    assert "secret_word" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_what_lacks_something_did_come_back(program: Run) -> None:
    cells = (
        "import sys; ticks = sys._getframe()",
        "rows = [1, ticks]",
        "login = {'secret': 'abc', 'user': 'me'}",
    )
    program("repl", "part", stdin="\n".join(cells))
    back = program("repl", "part", stdin="rows[0], login['user']\n")
    assert back.out.endswith("(1, 'me')\n")
    assert "\nticks did not come back: " in back.err
    assert "\nrows came back with a placeholder inside: holds what cannot be saved" in back.err
    assert "\nlogin came back with a placeholder inside: left out" in back.err
    assert "secret secret" in back.err
