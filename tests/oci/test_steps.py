"""The wrapper without an engine: what it does step by step, and when it is killed at one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.bundles import Bundle
from holdfast.testing.containerd import TRAMPOLINE
from holdfast.testing.waiting import eventually

# By a rename: one that is frozen while it writes has counted all the same.
COUNT = "i=0; while :; do i=$((i+1)); echo $i > /new; mv /new /count; sleep .05; done"


@pytest.fixture
def bundle(tmp_path: Path) -> Iterator[Bundle]:
    it = Bundle(tmp_path / "container", ["sh", "-c", COUNT])
    try:
        yield it
    finally:
        it.close()


def start(bundle: Bundle) -> None:
    bundle.runc("create")
    bundle.runc("start")
    eventually(lambda: bundle.count() > 0, "it counts")


def goes_on(bundle: Bundle) -> None:
    at = bundle.count()
    eventually(lambda: bundle.count() > at, "it goes on counting")


def checkpoints(bundle: Bundle) -> list[Path]:
    return sorted((bundle.folder / "checkpoints").glob("runc/tc/@*-*"))


def test_a_revived_container_waits_for_its_start(bundle: Bundle) -> None:
    start(bundle)
    bundle.runc("checkpoint")
    assert bundle.status() == "stopped"  # without --leave-running
    at = bundle.count()
    bundle.runc("delete")
    bundle.renew()

    bundle.runc("create")
    pid = int((bundle.folder / "pid").read_text())
    assert Path(f"/proc/{pid}").exists()
    assert bundle.status() == "created"
    waiting = bundle.count()
    assert at <= waiting
    for command in ("pause", "resume"):  # nothing to do before the start
        bundle.runc(command)
    assert (bundle.status(), bundle.count()) == ("created", waiting)
    bundle.runc("start")
    assert bundle.status() == "running"
    goes_on(bundle)
    bundle.runc("pause")
    assert bundle.status() == "paused"
    bundle.runc("checkpoint", "--leave-running")
    assert bundle.status() == "paused"  # as its caller left it
    bundle.runc("resume")
    goes_on(bundle)
    bundle.runc("delete", "--force")
    assert len(checkpoints(bundle)) == 2
    assert not list((bundle.folder / "run").rglob("*"))


def test_a_revived_container_may_be_killed_before_its_start(bundle: Bundle) -> None:
    start(bundle)
    bundle.runc("checkpoint")
    bundle.runc("delete")
    bundle.renew()
    bundle.runc("create")
    bundle.runc("kill", "KILL")
    pid = int((bundle.folder / "pid").read_text())
    eventually(lambda: not Path(f"/proc/{pid}/exe").exists(), "it is gone")
    bundle.runc("delete")
    assert len(checkpoints(bundle)) == 1


def test_whatever_the_caller_left_of_streams_and_signals(bundle: Bundle) -> None:
    """Closed descriptors, and children that nobody is told about."""
    careless = ["sh", "-c", 'trap "" CHLD; exec "$@" <&- >&- 2>&-', "sh"]
    bundle.runc("create", prefix=careless)
    bundle.runc("start", prefix=careless)
    eventually(lambda: bundle.count() > 0, "it counts")
    bundle.runc("checkpoint", prefix=careless)
    assert bundle.status() == "stopped"
    bundle.runc("delete", prefix=careless)
    bundle.renew()
    bundle.runc("create", prefix=careless)
    bundle.runc("start", prefix=careless)
    goes_on(bundle)
    assert len(checkpoints(bundle)) == 1


def test_when_the_newest_is_damaged_the_one_before_it_does(bundle: Bundle) -> None:
    start(bundle)
    bundle.runc("checkpoint", "--leave-running")
    bundle.runc("checkpoint")
    bundle.runc("delete")
    bundle.renew()
    older, newest = checkpoints(bundle)
    (newest / "environment").write_text("{}")
    bundle.runc("create")
    state = bundle.folder / f"run/containers{bundle.root}/@tc/container.json"
    assert json.loads(state.read_text())["restored_from"] == older.name[1:]
    assert "environment" in (bundle.folder / "runc.log").read_text()
    bundle.runc("start")
    goes_on(bundle)


def test_a_layer_that_was_not_clean_is_put_back_when_the_restore_fails(bundle: Bundle) -> None:
    start(bundle)
    bundle.runc("checkpoint")
    bundle.runc("delete")
    (bundle.folder / "upper/mine").write_text("written since")
    for image in checkpoints(bundle)[0].glob("memory/core-*.img"):
        image.write_bytes(image.read_bytes()[:-1])
    bundle.runc("create")
    assert bundle.status() == "created"
    assert (bundle.bundle / "rootfs/mine").read_text() == "written since"
    assert bundle.leftovers() == []


def test_an_old_layer_that_stays_harms_no_restore(bundle: Bundle) -> None:
    """The container is back before its old layer is deleted, so a file that cannot be deleted
    is reported, and the restored container is not tried again."""
    start(bundle)
    bundle.runc("checkpoint", "--leave-running")
    bundle.runc("checkpoint")
    bundle.runc("delete")
    folder = bundle.folder / "upper/kept"
    folder.mkdir()
    (folder / "immutable").write_text("no one deletes it")
    subprocess.run(["chattr", "+i", str(folder / "immutable")], check=True)
    try:
        bundle.runc("create")
        assert bundle.status() == "created"
        state = bundle.folder / f"run/containers{bundle.root}/@tc/container.json"
        newest = checkpoints(bundle)[-1].name[1:]
        assert json.loads(state.read_text())["restored_from"] == newest
        assert "old files stay on the disk" in (bundle.folder / "runc.log").read_text()
        bundle.runc("start")
        goes_on(bundle)
    finally:
        for left in bundle.folder.rglob("immutable"):
            subprocess.run(["chattr", "-i", str(left)], check=True)


def test_a_dump_that_fails_leaves_the_container_running(bundle: Bundle) -> None:
    start(bundle)
    config = bundle.bundle / "config.json"
    bundle.set_policy('checkpoint_options = ["--no-such-option"]')
    failed = bundle.runc("checkpoint", check=False)
    assert failed.returncode == 1
    told = json.loads((bundle.folder / "log.json").read_text().splitlines()[-1])
    assert told["level"] == "error"
    assert "cannot be dumped" in told["msg"]
    assert bundle.status() == "running"
    goes_on(bundle)
    assert bundle.leftovers() == []
    assert config.exists()


def killed_at(number: int, call: str = "rename") -> list[str]:
    """A prefix that kills the wrapper, and nobody else, at its Nth rename: each step has one."""
    inject = f"inject={call}:signal=KILL:when={number}"
    return ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]


def test_killed_at_each_step_of_a_checkpoint(bundle: Bundle) -> None:
    start(bundle)
    survived = False
    for step in range(1, 30):
        done = bundle.runc("checkpoint", "--leave-running", prefix=killed_at(step), check=False)
        survived = done.returncode == 0
        eventually(lambda: bundle.leftovers() == [], f"step {step} is undone")
        assert bundle.status() == "running", step
        goes_on(bundle)
        if survived:
            break
    assert survived, "a step beyond the last one kills nobody"
    assert step > 5
    bundle.runc("checkpoint")  # and the container can still be frozen
    assert bundle.status() == "stopped"


def test_killed_at_each_step_of_a_restore(bundle: Bundle) -> None:
    start(bundle)
    eventually(lambda: bundle.count() > 20, "it counts")
    bundle.set_policy("restore_limit = 100")
    bundle.runc("checkpoint")
    bundle.runc("delete")
    for step in range(1, 30):
        bundle.renew()
        done = bundle.runc("create", prefix=killed_at(step), check=False)
        if done.returncode == 0:
            break
        bundle.runc("delete", "--force", check=False)  # as an engine does after a failed create
        eventually(lambda: bundle.leftovers() == [], f"step {step} is undone")
        assert bundle.status() == "", step
    assert step > 5
    assert bundle.status() == "created"
    bundle.runc("start")
    assert bundle.count() > 20
    goes_on(bundle)


def test_killed_while_it_starts_or_is_deleted(bundle: Bundle) -> None:
    start(bundle)
    bundle.runc("checkpoint")
    bundle.runc("delete")
    bundle.renew()
    bundle.runc("create")
    # It is thawed, and nobody has noted that yet: starting again is no error.
    assert bundle.runc("start", prefix=killed_at(1, "unlink"), check=False).returncode != 0
    assert bundle.status() == "created"
    bundle.runc("start")
    assert bundle.status() == "running"
    goes_on(bundle)
    for call in ("unlink", "unlinkat", "rmdir"):
        done = bundle.runc("delete", "--force", prefix=killed_at(1, call), check=False)
        assert done.returncode != 0, call
        bundle.runc("delete", "--force")
        assert bundle.status() == ""
        bundle.renew()
        bundle.runc("create")  # the name is free again
    assert bundle.leftovers() == []


@pytest.mark.parametrize("subcommand", ["checkpoint", "create"])
def test_deleted_while_something_is_in_progress(bundle: Bundle, subcommand: str) -> None:
    start(bundle)
    if subcommand == "create":
        bundle.runc("checkpoint")
        bundle.runc("delete")
        bundle.renew()
    slowly = "inject=rename:delay_enter=6000000:when=6"
    words = ["strace", "-qq", "-o", "/dev/null", "-e", "trace=rename", "-e", slowly]
    busy = subprocess.Popen(
        [*words, str(TRAMPOLINE), *bundle.words(subcommand)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=bundle.environ,
    )
    operation = bundle.folder / f"run/containers{bundle.root}/@tc/operation.json"
    eventually(operation.exists, "it has begun")
    bundle.runc("delete", "--force")
    assert busy.wait(30) != 0
    assert bundle.leftovers() == []
    assert bundle.status() == ""


def test_the_wrapper_and_its_guard_killed_together(bundle: Bundle) -> None:
    """Then the next command mends it."""
    start(bundle)
    state = bundle.folder / f"run/containers{bundle.root}/@tc"
    bundle.runc("pause")
    # What both leave behind when they die between freezing and thawing.
    staged = bundle.folder / "checkpoints/.staging/abandoned"
    staged.mkdir(parents=True)
    gone = {"pid": 2**22 - 1, "started": 1}
    operation = {"what": "checkpoint", "owner": gone, "guard": gone, "paused": True}
    (state / "operation.json").write_text(json.dumps({**operation, "scratch": [str(staged)]}))
    assert bundle.status() == "running"  # asking was enough
    assert bundle.leftovers() == []
    goes_on(bundle)


def test_an_interpreter_without_holdfast_costs_nobody_a_container(bundle: Bundle) -> None:
    bundle.environ["HOLDFAST_PYTHON"] = "/usr/bin/python3"
    start(bundle)
    assert not (bundle.folder / "run").exists()
    bundle.environ["HOLDFAST_PYTHON"] = "/nowhere/python"
    goes_on(bundle)
    bundle.runc("delete", "--force")
    assert bundle.status() == ""


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["list", "-f", "json"],
        ["features"],
        ["checkpoint", "--help"],
        ["--root", "/nowhere", "state", "tc"],
        ["--root", "/nowhere", "--systemd-cgroup", "start", "tc"],
        ["--systemd-cgroup", "--root", "/nowhere", "delete", "-f", "tc"],
        ["--no-such-option"],
        ["frobnicate"],
        [],
    ],
    ids=" ".join,
)
def test_everything_else_is_runcs(bundle: Bundle, words: list[str]) -> None:
    """Byte by byte, and with the same exit code."""

    def call(program: str) -> tuple[int, bytes, list[bytes]]:
        done = subprocess.run(
            [program, *words], capture_output=True, env=bundle.environ, check=False
        )
        timeless = [line.partition(b" level=")[2] or line for line in done.stderr.splitlines()]
        return done.returncode, done.stdout, timeless

    assert call(str(TRAMPOLINE)) == call("runc")
