"""Control groups: how a command comes into them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.sandbox import limits
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.limits import Groups


def test_a_command_is_inside_before_it_begins(tmp_path: Path) -> None:
    """Of version 1 as a thread, for which the kernel waits for nobody."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, names in ((first, ["tasks", "cgroup.procs"]), (second, ["cgroup.procs"])):
        folder.mkdir()
        for name in names:
            (folder / name).touch()
    show = f"cat {first}/tasks {first}/cgroup.procs {second}/cgroup.procs"
    argv = Groups((first, second)).wrap(["/bin/sh", "-c", f'{show}; echo "$@"', "sh", "a b", "c"])
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert told == "0\n0\na b c\n"  # itself, and with its own words


def test_a_command_that_cannot_come_inside_does_not_begin(tmp_path: Path) -> None:
    argv = Groups((tmp_path / "gone",)).wrap(["/bin/echo", "outside"])
    told = subprocess.run(argv, capture_output=True, text=True)
    assert (told.returncode != 0, told.stdout) == (True, "")


def test_groups_that_stay_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "_TRY_SECONDS", 0.0)
    gone, empty, busy = (tmp_path / name for name in ("gone", "empty", "busy"))
    empty.mkdir()
    (busy / "inside").mkdir(parents=True)
    Groups((gone, busy, empty)).remove()
    assert not empty.exists()
    assert [record.getMessage() for record in caplog.records] == [
        f"the control group {busy} stays: something in it has not ended"
    ]


def test_limits_that_nothing_enforces_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a machine that has groups of version 1 for memory and the processor alone."""
    for name in ("memory", "cpu"):
        (tmp_path / name).mkdir()
    (tmp_path / "pids").write_text("no folder")
    found = [limits.make(name, Limits(), processes=5, mount=tmp_path) for name in ("a", "b")]
    assert [each.missing for each in found] == [("pids",), ("pids",)]
    assert [len(each.folders) for each in found] == [2, 2]
    assert [record.getMessage() for record in caplog.records] == [
        "nothing limits the pids of a sandbox here: this machine has no control groups for it"
    ]
