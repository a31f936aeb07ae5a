"""Before a node goes away: everything is saved, or still runs, and the report says which."""

from __future__ import annotations

import configparser
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from tests.units import verify

from holdfast.oci.finalizing import Candidate, Crew, Finalizer, Result, order
from holdfast.oci.installation import UNIT, carry_out, plan_install, plan_uninstall
from holdfast.oci.trampoline import Trampoline, bake
from holdfast.testing.containerd import Node
from holdfast.testing.counters import count
from holdfast.testing.power import Power, powered
from holdfast.testing.waiting import eventually

pytestmark = pytest.mark.timeout(400)  # many dumps, and machines may be busy

COUNT = (
    "dd if=/dev/urandom of=/data bs=1M count=2 2>/dev/null;"
    "i=0; while :; do i=$((i+1)); echo $i > /count; sleep .2; done"
)
MANY = 20
Found = dict[str, dict[str, object]]


def test_the_most_valuable_first_then_who_would_lose_most() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    a = Candidate("a", 0, now, "2026")
    b = Candidate("b", 0, now - timedelta(hours=1), "2026")
    c = Candidate("c", 0, None, "2026")
    older = Candidate("d", 0, None, "2025")
    worth = Candidate("e", 5, now, "2026")
    assert [each.subject for each in order([a, b, c, older, worth])] == ["e", "d", "c", "b", "a"]


def command(environ: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", "container", *words, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    )


def told(process: subprocess.Popen[str]) -> tuple[int, dict[str, object], Found]:
    out, _ = process.communicate(timeout=300)
    report = json.loads(out)
    listed = cast(list[dict[str, object]], report["containers"])
    return process.returncode, report, {str(e["subject"]).split("/")[-1]: e for e in listed}


@pytest.fixture
def small_disk(node: Node) -> Iterator[Path]:
    """The node's checkpoints are on a disk of their own; whoever uses it says how small it is."""
    place = node.folder / "checkpoints"
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def rotting_disk(node: Node) -> Iterator[Power]:
    """The same on a disk that keeps something else than it was given, when it is told to."""
    with powered(node.folder / "checkpoints") as power:
        yield power


def resize(disk: Path, megabytes: float) -> None:
    size = f"remount,size={megabytes * 1024:.0f}k"
    subprocess.run(["mount", "-o", size, str(disk)], check=True)


def start_all(node: Node, names: list[str]) -> None:
    def start(name: str) -> None:
        value = "5" if name == names[-1] else "0"
        env = ("HOLDFAST_CHECKPOINT=1", f"HOLDFAST_VALUE={value}")
        node.run(name, "sh", "-c", COUNT, env=env)
        eventually(lambda: count(node, name) > 0, f"{name} counts", 60)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, names))


def save_half(node: Node, running: list[str], last: str) -> list[str]:
    """Finalise until the disk is full: what is saved has stopped, all others go on; gives these."""
    code, report, found = told(command(node.environ, "finalize", "--deadline", "240"))
    assert sorted(found) == sorted(running)
    saved = [name for name, each in found.items() if each["outcome"] == "saved"]
    left = [name for name, each in found.items() if each["outcome"] == "running"]
    assert saved, found
    assert left, found
    assert (code, report["complete"]) == (9, False)
    if last in running:
        assert next(iter(found)) == last  # it was worth more
    for name in running:
        if name in left:
            assert node.status(name) == "RUNNING", name
        else:  # containerd is told by its shim, when that comes to it
            eventually(lambda name=name: node.status(name) == "STOPPED", f"{name} has stopped")
    before = {name: count(node, name) for name in left}
    assert any("No space left" in str(found[name]["reason"]) for name in left), found
    for name in left:
        eventually(lambda name=name: count(node, name) > before[name], f"{name} goes on")
    return left


def shut_down(node: Node, before: dict[str, int], left: list[str]) -> None:
    """The machine shuts down; afterwards everything goes on where it was, or later. `before` is
    what each had counted to, some time before it was saved."""
    before |= {name: count(node, name) for name in left}
    watching = command(node.environ, "watch", "--deadline", "240", "--every", "60")
    eventually(lambda: catches_term(watching.pid), "it waits")
    watching.send_signal(signal.SIGTERM)
    code, report, found = told(watching)
    assert (code, report["complete"], sorted(found)) == (0, True, sorted(left))
    eventually(lambda: {node.status(name) for name in before} == {"STOPPED"}, "all have stopped")

    def go_on(name: str) -> int:
        node.remove(name, signal=None)
        node.run(name, "sh", "-c", COUNT)
        return count(node, name)

    with ThreadPoolExecutor(4) as pool:
        after = dict(zip(before, pool.map(go_on, before), strict=True))
    lost = {name: (before[name], now) for name, now in after.items() if now < before[name]}
    assert lost == {}


def test_a_full_disk_half_way_loses_nothing(node: Node, small_disk: Path) -> None:
    names = [f"task{number}" for number in range(3)]
    start_all(node, names)
    # Where looking around takes longer than there is time, nothing is begun, and that is said.
    hurried = Finalizer(node.environ).run(0, jobs=2)
    assert not hurried.complete
    assert [each.outcome for each in hurried.results] == ["running"] * len(names)
    before = counts(node, names)
    resize(small_disk, 5)
    left = save_half(node, names, names[-1])
    resize(small_disk, 100)
    shut_down(node, before, left)


def test_a_runc_that_fails_loses_nothing(node: Node, tmp_path: Path) -> None:
    """A container whose status runc does not tell counts as running, and is neither dropped from
    the plan nor reported as ended."""
    start_all(node, ["steady"])
    runc = tmp_path / "runc"
    runc.write_text("#!/bin/sh\necho input/output error >&2\nexit 1\n")
    runc.chmod(0o755)
    report = Finalizer({**node.environ, "HOLDFAST_RUNC": str(runc)}).run(60, jobs=1)
    (result,) = report.results
    assert (result.outcome, report.complete) == ("running", False)
    assert "runc does not answer" in result.reason
    assert node.status("steady") == "RUNNING"
    code, _, found = told(command(node.environ, "finalize", "--deadline", "60"))
    assert (code, found["steady"]["outcome"]) == (0, "saved")


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A control group whose processes stand still: SIGKILL does not end them, as on a dead disk."""
    group = Path("/sys/fs/cgroup/freezer") / f"holdfast-test-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        (group / "freezer.state").write_text("THAWED")
        eventually(lambda: not (group / "cgroup.procs").read_text(), "all processes have ended")
        group.rmdir()


def test_an_unkillable_process_delays_no_report(freezer: Path) -> None:
    def work(subject: str) -> Result:
        if subject == "stuck":
            (freezer / "cgroup.procs").write_text("0")
            (freezer / "freezer.state").write_text("FROZEN")
        return Result(subject=subject, outcome="saved")

    def interrupted(subject: str, reason: str) -> Result:
        return Result(subject=subject, outcome="running", reason=reason)

    results: list[Result] = []
    began = time.monotonic()
    Crew(work, interrupted).work(["stuck", "other"], began + 1, 2, results.append)
    assert time.monotonic() - began < 30
    outcomes = {each.subject: each.outcome for each in results}
    assert outcomes == {"stuck": "running", "other": "saved"}
    assert "does not end" in results[-1].reason


@pytest.mark.soak
def test_twenty_under_a_deadline(node: Node, small_disk: Path) -> None:
    names = [f"job{number:02}" for number in range(MANY)]
    start_all(node, names)
    before = counts(node, names)

    # In no time nothing can be saved; nothing is stopped either.
    code, report, found = told(command(node.environ, "finalize", "--deadline", "1", "--jobs", "2"))
    assert code == (0 if report["complete"] else 9) == 9
    running = [name for name in names if node.status(name) == "RUNNING"]
    assert sorted(running) == sorted(n for n, each in found.items() if each["outcome"] == "running")
    assert len(running) > MANY / 2

    before |= counts(node, running)
    resize(small_disk, 26)
    left = save_half(node, running, names[-1])
    resize(small_disk, 200)
    shut_down(node, before, left)


def test_nothing_is_stopped_by_a_checkpoint_that_was_damaged(
    node: Node, rotting_disk: Power
) -> None:
    """What was kept is read again before its container ends. And they are saved side by side."""
    names = [f"rot{number}" for number in range(3)]
    start_all(node, names)
    before = counts(node, names)
    rotting_disk.rot("pages-1.img")
    finalize = ("finalize", "--deadline", "240", "--jobs", "3")
    code, report, found = told(command(node.environ, *finalize))
    assert (code, report["complete"]) == (9, False)
    assert {each["outcome"] for each in found.values()} == {"running"}
    assert all("is not what was written" in str(e["reason"]) for e in found.values()), found
    for name in names:
        assert node.status(name) == "RUNNING"
        eventually(lambda name=name: count(node, name) > before[name], f"{name} goes on")
    rotting_disk.rot()
    code, report, found = told(command(node.environ, *finalize))
    assert (code, report["complete"], sorted(found)) == (0, True, names), found
    eventually(lambda: {node.status(name) for name in names} == {"STOPPED"}, "all have stopped")
    # One after the other they could not have taken longer than all of it.
    assert sum(float(str(e["seconds"])) for e in found.values()) > float(str(report["seconds"]))


def counts(node: Node, names: list[str]) -> dict[str, int]:
    return {name: count(node, name) for name in names}


def catches_term(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(status.split("SigCgt:")[1].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("trigger", ["file", "command"])
def test_it_is_time(tmp_path: Path, trigger: str) -> None:
    notice = tmp_path / "notice"
    environ = {
        **os.environ,
        "HOLDFAST_RUN": str(tmp_path / "run"),
        "HOLDFAST_POLICY": str(tmp_path / "policy.toml"),
    }
    words = ["--file", str(notice)] if trigger == "file" else ["--command", f"cat {notice}"]
    watching = command(environ, "watch", *words, "--expect", "terminate", "--every", "0.1")
    eventually(lambda: catches_term(watching.pid), "it waits")
    if trigger == "command":
        notice.write_text("nothing yet")
        with pytest.raises(subprocess.TimeoutExpired):
            watching.wait(1)
    notice.write_text('{"action": "terminate"}')
    code, report, found = told(watching)
    assert (code, report["complete"], found) == (0, True, {})
    assert str(notice) in str(report["trigger"]) or "terminate" in str(report["trigger"])


def test_what_nobody_can_mean_is_refused(tmp_path: Path) -> None:
    environ = {**os.environ, "HOLDFAST_RUN": str(tmp_path / "run")}
    for words in (["--command", ""], ["--command", "a 'b"], ["--expect", "(", "--command", "a"]):
        process = command(environ, "watch", *words)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 11, error


def test_the_unit_is_placed_and_taken_away(repository: Path, tmp_path: Path) -> None:
    trampoline = Trampoline(bake(sys.executable, "/usr/sbin/runc"))
    plan = plan_install(tmp_path, ["podman"], trampoline, watch=True)
    carry_out(plan)
    assert "systemctl enable --now holdfast-watch" in plan.notes
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((tmp_path / UNIT).read_text())
    program, *words = unit["Service"]["ExecStart"].split()
    assert program == sys.executable
    subprocess.run([program, *words, "--help"], check=True, capture_output=True)
    assert int(unit["Service"]["TimeoutStopSec"]) > float(words[-1])
    assert "containerd.service" in unit["Unit"]["After"]
    verify(tmp_path / UNIT)
    # And as the guide changes it, to ask a cloud for its notice.
    guide = (repository / "docs" / "guides" / "nodes-that-go-away.md").read_text("utf-8")
    (asking,) = re.findall(r"```ini\n(.*?)```", guide, re.DOTALL)
    beside = tmp_path / f"{UNIT}.d"
    beside.mkdir()
    (beside / "override.conf").write_text(asking)
    verify(tmp_path / UNIT)
    (beside / "override.conf").unlink()
    beside.rmdir()
    undo = plan_uninstall(tmp_path)
    assert undo.notes[0] == "systemctl disable --now holdfast-watch"
    carry_out(undo)
    assert not (tmp_path / UNIT).exists()
