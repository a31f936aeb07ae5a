"""The program as a process: streams, exit codes, pipes, signals, terminals, completion."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pexpect
import pytest
from tests.cli.conftest import HOLDFAST, Run, fill

from holdfast import __version__
from holdfast.cli.main import cli
from holdfast.cli.reference import complete_reference
from holdfast.store import open_store
from holdfast.testing.processes import running


def test_version_and_help(program: Run) -> None:
    assert program("--version").out == f"holdfast {__version__}\n"
    assert program("--help").out.startswith("Usage: holdfast")
    assert "--keep-last" in program("prune", "-h").out
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "--version"], capture_output=True, text=True
    )
    assert done.stdout == f"holdfast {__version__}\n"


@pytest.mark.parametrize("group", [[], ["key"]])
def test_a_missing_command_shows_the_help(program: Run, group: list[str]) -> None:
    outcome = program(*group)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == program(*group, "--help").out
    told = json.loads(program(*group, "--json").err)["error"]
    assert (told["kind"], told["message"]) == ("usage", "Missing command.")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["completion"], 2, "error: Missing argument 'SHELL': one of bash, zsh, fish\nhint: "),
        (["lst"], 2, "error: No such command 'lst'. Did you mean 'list'?\n"),
        (["show"], 2, "error: Missing argument 'ID'.\nhint: see `holdfast show --help`\n"),
        (["list", "--nope"], 2, "error: No such option"),
        (["show", "state/none"], 3, "error: there is no subject state/none\nhint: "),
        (["checkpoint", "state/none"], 5, "error: "),
        (["list", "nothing"], 11, "error: not a subject: 'nothing'\nhint: "),
    ],
)
def test_errors_for_people(program: Run, arguments: list[str], code: int, message: str) -> None:
    outcome = program(*arguments)
    assert outcome.code == code
    assert outcome.out == ""
    assert outcome.err.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["--json", "show", "state/none"], 3, "not_found"),
        (["show", "state/none", "--json"], 3, "not_found"),
        (["show", "--json"], 2, "usage"),
        (["list", "--json", "nothing"], 11, "bad_input"),
    ],
)
def test_errors_for_programs(program: Run, arguments: list[str], code: int, kind: str) -> None:
    outcome = program(*arguments)
    assert outcome.code == code
    assert outcome.out == ""
    error = json.loads(outcome.err)["error"]
    assert error.keys() == {"kind", "message", "hint"}
    assert error["kind"] == kind


def test_json_before_and_after_the_verb(program: Run, ids: list[str]) -> None:
    assert program("--json", "list").out == program("list", "--json").out
    assert program("--json", "key", "show").out == program("key", "show", "--json").out


def test_the_store_by_option_and_by_variable(program: Run, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    with open_store(str(place)) as store:
        fill(store, count=1)
    for outcome in (
        program("--store", str(place), "list"),
        program("list", "--store", str(place)),
        program("list", environ={"HOLDFAST_STORE": str(place)}),
    ):
        assert "step 0" in outcome.out
    assert "step 0" not in program("list").out


def test_a_reader_that_leaves_early_ends_it_quietly(ids: list[str]) -> None:
    done = subprocess.run(
        f"{HOLDFAST} show {ids[0]} --json | head -c 1; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("{")
    assert done.stderr == ""


def test_a_reader_that_is_gone_before_the_first_word(ids: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([HOLDFAST, "list"], stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_ctrl_c_ends_it_cleanly() -> None:
    with open_store() as store, store.draft("state/big") as draft:
        draft.put("bytes", b"x" * 10_000_000)
        draft.commit()
    with running(
        [HOLDFAST, "show", "state/big", "--part", "bytes"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as showing:
        assert showing.stdout is not None
        assert showing.stderr is not None
        showing.stdout.read(1)  # it is at work, and the pipe is full
        time.sleep(0.2)
        showing.send_signal(signal.SIGINT)
        assert showing.wait(20) == 130
        assert showing.stderr.read() == b"interrupted\n"


def test_names_that_the_terminal_cannot_show(program: Run) -> None:
    reason = "日本 \x1b[2J[bold]"
    with open_store() as store, store.draft("state/naïve", reason=reason) as draft:
        draft.commit()
    shown = program("list").out
    assert "日本 \\x1b[2J[bold]" in shown
    plain = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    assert "na\\xefve" in program("list", environ=plain).out
    log = program("log", "state/naïve".encode().decode(), environ=plain)
    assert log.out.startswith("*")
    assert json.loads(program("list", "--json", environ=plain).out)


def test_on_a_terminal_tables_fit_and_have_colour(ids: list[str]) -> None:
    with open_store() as store, store.draft("state/long", reason="long " * 40) as draft:
        draft.commit()
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "60", "NO_COLOR": ""}
    shown = pexpect.run(
        f"{HOLDFAST} list", env=environ, dimensions=(40, 60), timeout=30, encoding="utf-8"
    )
    assert "\x1b[" in shown
    assert "…" in shown
    assert "\x1b[" not in subprocess.run([HOLDFAST, "list"], capture_output=True, text=True).stdout


def test_progress_is_drawn_for_people_only(ids: list[str], program: Run) -> None:
    environ = {**os.environ, "TERM": "xterm-256color"}
    with_bar = pexpect.run(
        f"{HOLDFAST} verify --deep", env=environ, dimensions=(40, 100), timeout=30, encoding="utf-8"
    )
    assert "verifying" in with_bar
    assert "ok: 3 checkpoints" in with_bar
    assert program("verify", "--deep").err == ""


def test_a_binary_part_stays_off_the_terminal(ids: list[str]) -> None:
    shown = pexpect.run(
        f"{HOLDFAST} show {ids[0]} --part bytes", timeout=30, encoding="utf-8", env=dict(os.environ)
    )
    assert "would confuse the terminal" in shown


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("holdfast ro", "rollback"),
        ("holdfast list st", "state/demo"),
        ("holdfast list --ki", "--kind"),
        ("holdfast list --kind ses", "session"),
        ("holdfast show state", "state/demo"),
        ("holdfast key ex", "export"),
    ],
)
def test_completion(program: Run, ids: list[str], words: str, found: str) -> None:
    environ = {
        "_HOLDFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    outcome = program(environ=environ)
    assert f"plain,{found}" in outcome.out.splitlines()
    assert outcome.err == ""


def test_completion_without_a_store_is_silent(program: Run) -> None:
    environ = {
        "_HOLDFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": "holdfast show x",
        "COMP_CWORD": "2",
        "HOLDFAST_STORE": "/nowhere/at/all",
    }
    outcome = program(environ=environ)
    assert (outcome.out.strip(), outcome.err) == ("", "")


def test_completion_makes_no_store(program: Run, holdfast_home: Path) -> None:
    environ = {
        "_HOLDFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": "holdfast show x",
        "COMP_CWORD": "2",
    }
    outcome = program(environ=environ)
    assert (outcome.out.strip(), outcome.err) == ("", "")
    assert list(holdfast_home.iterdir()) == []


def test_completion_asks_for_no_passphrase(tmp_path: Path) -> None:
    """On a real terminal, where it is asked for otherwise."""
    open_store(tmp_path / "vault", encrypt=True, passphrase="open sesame").close()
    environ = {
        **os.environ,
        "_HOLDFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": "holdfast show x",
        "COMP_CWORD": "2",
        "HOLDFAST_STORE": str(tmp_path / "vault"),
    }
    told = pexpect.run(str(HOLDFAST), timeout=30, encoding="utf-8", env=environ)
    assert told.strip() == ""


def test_completion_without_a_home_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("HOLDFAST_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(Path, "home", nowhere)
    assert complete_reference(click.Context(cli), click.Argument(["id"]), "") == []


def test_a_defect_is_told_without_a_traceback(program: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    outcome = program("list", "--store", str(tmp_path / "file"))
    assert outcome.code != 0
    assert "Traceback" not in outcome.err
    assert outcome.err.startswith("error: ")
