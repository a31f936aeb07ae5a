"""`holdfast run`: a script that goes on where it stopped, whatever stopped it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import HOLDFAST, Run

from holdfast.testing.processes import running

SCRIPT = """\
# %% first
import json, os
numbers = []
def note(number):
    numbers.append(number)
    with open("log", "a") as log:
        log.write(f"{number}\\n")
note(1)
# %% second
note(2)
# %% third
note(3)
print(numbers)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def log(tmp_path: Path) -> list[int]:
    return [int(line) for line in (tmp_path / "log").read_text().split()]


def soon(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def talks(program: subprocess.Popen[bytes]) -> bool:
    """Whether it has come to the door of a session: whether a socket of it is connected."""
    sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    connected = {f"socket:[{found[6]}]" for found in sockets if found[5] == "03"}
    try:
        files = {os.readlink(fd) for fd in Path(f"/proc/{program.pid}/fd").iterdir()}
    except FileNotFoundError:
        return False  # it has just closed one
    return bool(files & connected)


def test_all_cells_run_once(program: Run, script: Path, tmp_path: Path) -> None:
    first = program("run", "work", "script.py")
    assert (first.code, first.out) == (0, "[1, 2, 3]\n")
    assert first.err == "script.py: 3 cells to run\n"

    again = program("run", "work", "script.py")
    assert (again.code, again.out) == (0, "")
    assert "all done" in again.err
    assert log(tmp_path) == [1, 2, 3]


def test_a_cell_that_raises_is_run_again_when_it_was_mended(
    program: Run, script: Path, tmp_path: Path
) -> None:
    script.write_text(SCRIPT.replace("note(3)", "raise ValueError('not yet')"))
    failed = program("run", "work", "script.py")
    assert failed.code == 1
    assert 'File "script.py", line 12, in <module>' in failed.err
    assert "error: cell 3 (script.py, line 11): ValueError: not yet" in failed.err
    assert "goes on at cell 3" in failed.err

    script.write_text(SCRIPT)
    mended = program("run", "work", "script.py")
    assert (mended.code, mended.out) == (0, "[1, 2, 3]\n")
    assert "going on at cell 3 from" in mended.err
    assert log(tmp_path) == [1, 2, 3]


def test_a_changed_cell_runs_again_and_so_do_those_after_it(
    program: Run, script: Path, tmp_path: Path
) -> None:
    program("run", "work", "script.py")
    script.write_text(SCRIPT.replace("note(2)", "note(20)"))

    planned = program("run", "work", "script.py", "--dry-run", "--json")
    assert [cell["status"] for cell in planned.json["cells"]] == ["done", "to run", "to run"]
    assert log(tmp_path) == [1, 2, 3]

    changed = program("run", "work", "script.py")
    assert changed.out == "[1, 20, 3]\n"
    assert "that cell was changed" in changed.err
    assert log(tmp_path) == [1, 2, 3, 20, 3]


def test_from_a_cell(program: Run, script: Path, tmp_path: Path) -> None:
    program("run", "work", "script.py")
    assert program("run", "work", "script.py", "--from", "3").out == "[1, 2, 3]\n"
    assert log(tmp_path) == [1, 2, 3, 3]
    wrong = program("run", "work", "script.py", "--from", "7")
    assert wrong.code == 11
    assert "the script has cells 1 to 3" in wrong.err
    for number in ("0", "-1", ""):
        assert program("run", "work", "script.py", "--from", number).code == 2

    assert program("run", "work", "script.py", "--from", "second").out == "[1, 2, 3]\n"
    assert log(tmp_path) == [1, 2, 3, 3, 2, 3]
    wrong = program("run", "work", "script.py", "--from", "secnd")
    assert wrong.code == 11
    assert "did you mean 'second'?" in wrong.err


def test_json_has_the_cells_and_the_output_goes_to_stderr(program: Run, script: Path) -> None:
    done = program("run", "work", "script.py", "--json")
    assert [cell["status"] for cell in done.json["cells"]] == ["ran"] * 3
    assert done.json["checkpoint"]["stage"].startswith("cell 3 of 3 #")
    assert "[1, 2, 3]" in done.err


def test_arguments_input_and_modules_beside_the_script(
    program: Run, script: Path, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/beside.py").write_text("word = 'beside'\n")
    (tmp_path / "sub/main.py").write_text(
        "import sys, beside\nprint(sys.argv, __file__, __name__, beside.word)\n"
        "print(input('who? '))\nprint(repr(input()))\n"
    )
    done = program("run", "work", "sub/main.py", "--", "--fast", "x", stdin="me\n")
    assert done.out.splitlines()[0] == (
        "['sub/main.py', '--fast', 'x'] sub/main.py __main__ beside"
    )
    assert "who? me\n" in done.out
    assert "EOFError" in done.err  # there was only one line


def test_people_see_the_cells_without_their_marks(program: Run, script: Path) -> None:
    program("run", "work", "script.py", "--", "1")
    lines = program("log", "session/work").out.splitlines()
    assert [re.split("  +", line)[2] for line in lines] == [
        f"run script.py [cell {number} of 3]" for number in (3, 2, 1)
    ]
    listed = program("list", "session/work").out
    assert "cell 3 of 3" in listed
    assert "#" not in listed
    # There they are, for whoever wants to know.
    assert re.search("cell 3 of 3 #[0-9a-f]{16} with #", program("show", "session/work").out)


def test_the_command_that_goes_on_can_be_pasted(program: Run, tmp_path: Path) -> None:
    text = "import sys\nassert sys.argv[1:] == ['--json', 'a b']\n1 / 0\n"
    (tmp_path / "it's mine.py").write_text(text)
    words = ["run", "--store", "the store", "job", "it's mine.py", "--", "--json", "a b"]
    failed = program(*words)
    assert failed.code == 1
    again = re.search(r"`(holdfast .*)` goes on at cell 3", failed.err)
    assert again is not None
    assert shlex.split(again[1]) == ["holdfast", *words]
    assert "going on at cell 3" in program(*shlex.split(again[1])[1:]).err


def test_a_script_without_a_cell(program: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.py").touch()
    done = program("run", "job", "empty.py")
    assert (done.code, done.err) == (0, "empty.py: there is nothing to run\n")


def test_with_other_arguments_everything_runs_anew(program: Run, script: Path) -> None:
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    assert program("run", "work", "script.py", "--", "1").out == "['1']\n"
    assert "all done" in program("run", "work", "script.py", "--", "1").err
    other = program("run", "work", "script.py", "--", "2")
    assert other.out == "['2']\n"
    assert other.err == "script.py: 2 cells to run, because its arguments were changed\n"
    none = program("run", "work", "script.py")
    assert none.out == "[]\n"
    assert "because its arguments were changed" in none.err
    assert "all done" in program("run", "work", "script.py").err

    script.write_text("import sys\nassert not sys.argv\n")
    failed = program("run", "work", "script.py", "--", "--of", "a b")
    assert "`holdfast run work script.py -- --of 'a b'` goes on at cell 2" in failed.err


def test_a_mistyped_option_runs_nothing(run: Run, script: Path, tmp_path: Path) -> None:
    wrong = run("run", "work", "script.py", "--dry-rum")
    assert wrong.code == 2
    assert wrong.err == (
        "error: No such option '--dry-rum'. Did you mean '--dry-run'?\n"
        "hint: the script's own options stand behind --; see `holdfast run --help`\n"
    )
    for option in ("--fast", "--fast=1", "-f"):
        wrong = run("run", option, "work", "script.py")
        assert wrong.code == 2
        assert "No such option" in wrong.err
    assert not (tmp_path / "log").exists()
    assert run("subjects", "--json").json["subjects"] == []


def test_what_cannot_be_run(program: Run, script: Path) -> None:
    assert program("run", "work", "nothing.py").code == 2
    script.write_text("a = (\n")
    wrong = program("run", "work", "script.py")
    assert wrong.code == 11
    assert "script.py, line 1" in wrong.err
    script.write_bytes(b"# \xff\n")
    assert "not UTF-8" in program("run", "work", "script.py").err
    script.write_text("pass\n")
    assert program("run", "sandbox/x", "script.py").code == 11


def test_ctrl_c_ends_the_cell_and_keeps_those_before_it(
    program: Run, script: Path, tmp_path: Path
) -> None:
    script.write_text(SCRIPT.replace("print(numbers)", "import time; time.sleep(60)"))
    words = [HOLDFAST, "run", "work", "script.py"]
    with running(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        soon(lambda: (tmp_path / "log").exists() and log(tmp_path) == [1, 2, 3])
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted in cell 3; 2 of 3 cells are kept" in err

    script.write_text(SCRIPT)
    assert program("run", "work", "script.py").out == "[1, 2, 3]\n"


def test_a_checkpoint_while_it_runs(program: Run, script: Path, tmp_path: Path) -> None:
    wait = "import time\nwhile not os.path.exists('gate'): time.sleep(0.01)"
    script.write_text(SCRIPT.replace("note(2)", f"note(2)\n{wait}"))
    ask = [HOLDFAST, "checkpoint", "session/work", "--reason", "asked for"]
    with running([HOLDFAST, "run", "work", "script.py"], cwd=tmp_path) as work:
        soon(lambda: (tmp_path / "log").exists() and log(tmp_path) == [1, 2])
        with running(ask) as asking:
            soon(lambda: talks(asking))
            with pytest.raises(subprocess.TimeoutExpired):
                asking.wait(1)  # the cell is not cut in the middle
            (tmp_path / "gate").touch()
            assert asking.wait(60) == 0
        assert work.wait(60) == 0
    assert "asked for" in program("log", "session/work").out
    assert "all done" in program("run", "work", "script.py").err


def test_killed_in_every_cell(program: Run, script: Path, tmp_path: Path) -> None:
    """The whole program is killed once in each of ten cells; all the others run just once."""
    cell = (
        "# %%\nseen.append({0})\nopen('log', 'a').write('{0}\\n')\n"
        "if not os.path.exists('killed{0}'):\n"
        "    open('killed{0}', 'w').close()\n"
        "    os.kill(os.getppid(), 9); time.sleep(60)\n"
    )
    cells = "".join(cell.format(number) for number in range(1, 11))
    script.write_text("import os, time\nseen = []\n" + cells + "# %%\nprint(seen)\n")
    # The worker's parent is the program itself: what a cell kills is what a person started.
    for number in range(1, 11):
        killed = program("run", "work", "script.py")
        assert killed.code == -9, killed.err
        assert log(tmp_path)[-1] == number
    done = program("run", "work", "script.py")
    assert done.code == 0, done.err
    assert done.out == f"{list(range(1, 11))}\n"
    assert log(tmp_path) == [number for n in range(1, 11) for number in (n, n)]


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ("3", 3, ""),
        ("-1", 255, ""),
        ("True", 1, ""),
        ("'not today'", 1, "not today\n"),
        ("", 0, ""),
        ("0", 0, ""),
        ("False", 0, ""),
    ],
)
def test_sys_exit_ends_the_script_as_python_does(
    program: Run, script: Path, tmp_path: Path, given: str, code: int, said: str
) -> None:
    script.write_text(SCRIPT.replace("note(2)", f"note(2)\nimport sys; sys.exit({given})"))
    for begins in ("3 cells to run", "3 cells; going on at cell 2"):
        ended = program("run", "work", "script.py")
        assert (ended.code, ended.out) == (code, "")
        assert begins in ended.err
        assert ended.err.endswith(
            f"\n{said}sys.exit in cell 2 (script.py, line 9); 1 of 3 cells are kept;"
            " `holdfast run work script.py` goes on at cell 2\n"
        )
    told = program("run", "work", "script.py", "--json")
    assert told.code == code
    cells = [cell["status"] for cell in told.json["cells"]]
    assert cells == ["done", "failed" if code else "left", "to run"]
    assert log(tmp_path) == [1, 2, 2, 2]


def test_a_script_that_ends_with_sys_exit_is_done(program: Run, script: Path) -> None:
    main = "def main():\n    print('at work')\n    return {}\n"
    last = "if __name__ == '__main__':\n    raise SystemExit(main())\n"
    script.write_text(main.format(4) + last)
    assert program("run", "work", "script.py").code == 4

    script.write_text(main.format(0) + last)
    done = program("run", "work", "script.py")
    assert (done.code, done.out) == (0, "at work\n")
    again = program("run", "work", "script.py")
    assert (again.code, again.out) == (0, "")
    assert "2 cells, all done" in again.err


def test_a_worker_that_is_killed_is_gone_on_without(
    program: Run, script: Path, tmp_path: Path
) -> None:
    """Killed by itself here, as by the kernel when memory runs out: `run` is told, and says so."""
    script.write_text(
        SCRIPT.replace(
            "note(2)\n",
            "note(2)\nif not os.path.exists('killed'):\n"
            "    open('killed', 'w').close()\n    os.kill(os.getpid(), 9)\n",
        )
    )
    killed = program("run", "work", "script.py")
    assert killed.code == 1, killed.err
    assert "error: cell 2 (script.py, line 9): WorkerDied: " in killed.err
    assert "1 of 3 cells are kept" in killed.err
    assert log(tmp_path) == [1, 2]

    again = program("run", "work", "script.py")
    assert (again.code, again.out) == (0, "[1, 2, 3]\n"), again.err
    assert "going on at cell 2 from" in again.err
    assert log(tmp_path) == [1, 2, 2, 3]


def test_what_a_rollback_left_is_not_done(program: Run, script: Path, tmp_path: Path) -> None:
    """Nor is it when the checkpoint that it went back to is gone, or stayed in another store."""
    program("repl", "work", stdin="x = 1\n")
    first = program("list", "--json").json["checkpoints"][0]["id"]
    program("run", "work", "script.py")
    assert program("rollback", "session/work", "--to", first).code == 0
    planned = program("run", "work", "script.py", "--dry-run").err
    assert "script.py: 3 cells to run" in planned

    assert program("export", "session/work", "work.holdfast", "--ancestors").code == 0
    elsewhere = {"HOLDFAST_HOME": str(tmp_path / "elsewhere")}
    taken = program("import", "work.holdfast", "--trust", environ=elsewhere)
    assert taken.code == 0, taken.err
    assert program("delete", first).code == 0
    for environ in ({}, elsewhere):
        planned = program("run", "work", "script.py", "--dry-run", environ=environ).err
        assert "script.py: 3 cells to run" in planned
    assert program("run", "work", "script.py").out == "[1, 2, 3]\n"


def test_other_work_in_the_session_is_not_left_without_a_word(program: Run, script: Path) -> None:
    program("repl", "lab", stdin="x = 41\n")
    head = program("show", "session/lab", "--json").json["checkpoint"]["short"]
    back = ("rollback", "session/lab", "--to", head)
    ran = program("run", "lab", "script.py")
    assert ran.err == (
        "script.py: 3 cells to run\n"
        f"session/lab has other work, up to {head}, and this begins a new line without it;"
        f" `holdfast {' '.join(back)}` goes back to it\n"
    )
    assert program(*back).code == 0
    assert "42" in program("repl", "lab", stdin="x + 1\n").out

    assert program("run", "own", "script.py").err == "script.py: 3 cells to run\n"
    assert program("run", "own", "script.py", "--from", "1").err == "script.py: 3 cells to run\n"
    program("repl", "own", stdin="numbers.append(4)\n")
    script.write_text(SCRIPT.replace("note(3)", "note(30)"))
    ran = program("run", "own", "script.py")
    assert ran.out == "[1, 2, 30]\n"
    assert "session/own has other work, up to " in ran.err
    assert ", and this goes on from " in ran.err


def test_another_script_is_called_so(program: Run, script: Path) -> None:
    program("run", "work", "script.py")
    head = program("show", "session/work", "--json").json["checkpoint"]["short"]
    script.with_name("other.py").write_text("y = 1\n")
    told = program("run", "work", "other.py", "--dry-run").err
    assert told.splitlines()[0] == (
        f"other.py: 1 cell to run, because {head} is of another script, script.py"
    )
    assert f"`holdfast rollback session/work --to {head}` goes back to it" in told
    script.with_name("other.py").write_text(SCRIPT.replace("note(2)", "note(20)"))
    told = program("run", "work", "other.py", "--dry-run").err
    assert f": {head} is of another script, script.py\n" in told
    script.write_text(SCRIPT.replace("numbers = []", "numbers = [0]"))
    told = program("run", "work", "script.py", "--dry-run").err
    assert told == "script.py: 3 cells to run, because its first cell was changed\n"


def test_a_script_without_code_is_not_done(run: Run, script: Path) -> None:
    script.write_text("# %% only words\n# to come\n")
    told = run("run", "work", "script.py")
    assert (told.code, told.err) == (0, "script.py: there is nothing to run\n")
    assert run("run", "work", "script.py", "--from", "1").code == 11
