"""What no machine can do: numbers, addresses and settings that cannot be. Told in words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import HOLDFAST, Run
from tests.strangers import folder_of_nobody, run_as_nobody

MANY = "9" * 5000


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["list", "--limit", MANY], 2, "too large"),
        (["list", "--limit", "9" * 19], 2, "too large"),
        (["prune", "--keep-last", MANY], 2, "too large"),
        (["prune", "--keep-reason", f"a={MANY}"], 2, "is not REASON=N"),
        (["prune", "--max-bytes", MANY], 2, "too large"),
        (["prune", "--keep-within", f"{MANY}d"], 2, "longer than time goes"),
        (["list", "--store", "http://[bad"], 11, "not a store's address"),
        (["list", "--store", "~there-is-no-such-user/x"], 11, "not a store's address"),
        (["list", "--store", "file:///tmp/%00x"], 11, "no path has a zero byte"),
        (["init", "--store", "file:///tmp/%00x"], 11, "no path has a zero byte"),
        (["list", "--store", "half \ud800"], 11, "not a store's address"),
    ],
)
def test_it_is_told_in_words(run: Run, arguments: list[str], code: int, message: str) -> None:
    done = run(*arguments)
    assert done.code == code, done.err
    assert message in done.err
    assert "unexpected" not in done.err
    assert len(done.err) < 400


@pytest.mark.parametrize(
    "content", ["a=" + "[" * 100_000, "port=" + MANY, f'port="{MANY}"', "port=70000"]
)
def test_settings_that_cannot_be(run: Run, no_config: Path, content: str) -> None:
    file = no_config / "holdfast" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    done = run("config")
    assert done.code == 11
    assert "config.toml" in done.err
    assert "unexpected" not in done.err
    assert len(done.err) < 800


def test_a_user_without_a_home(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("HOLDFAST_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    for arguments in (["list"], ["list", "--files"], ["config"]):
        done = run(*arguments)
        assert done.code == 11
        assert done.err.startswith("error: this user has no home directory\nhint: set HOME")


@pytest.mark.parametrize("arguments", [["key", "show"], ["list", "--store", "store"], ["list"]])
def test_a_home_that_a_file_is_in_the_way_of(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("init", "store").code == 0
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "file" / "home"))
    done = run(*arguments)
    assert done.code == 11
    assert "hint: " in done.err


def test_settings_that_only_somebody_else_may_read() -> None:
    with folder_of_nobody("settings") as folder:
        file = folder / ".config" / "holdfast" / "config.toml"
        file.parent.mkdir(parents=True)
        file.touch(mode=0o600)
        done = run_as_nobody(folder, "-m", "holdfast", "config")
        assert done.returncode == 8
        assert done.stderr.startswith(f"error: {file} cannot be read\nhint: make it readable")


def test_pathlib_still_says_it_in_these_words() -> None:
    code = (
        "import os, pathlib; os.setuid(54321); os.environ.pop('HOME', None)\n"
        "try: pathlib.Path.home()\n"
        "except RuntimeError as error: assert 'home directory' in str(error)\n"
        "else: raise AssertionError"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def _shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line, "sh", HOLDFAST], capture_output=True, text=True, timeout=60
    )


def test_a_closed_stdout_is_told() -> None:
    done = _shell('"$1" list >&-')
    assert done.returncode == 2
    assert done.stderr.startswith("error: standard output is closed\nhint: ")


def test_a_closed_stderr_puts_no_messages_among_the_data() -> None:
    done = _shell('"$1" list 2>&-')
    assert (done.returncode, done.stdout) == (0, "")
    done = _shell('"$1" list --limit 0 2>&-')
    assert (done.returncode, done.stdout) == (2, "")
