"""Containers under a real containerd go on where they were frozen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pexpect
import pytest

from holdfast.store import open_store
from holdfast.testing.containerd import Node, await_tidied
from holdfast.testing.counters import count
from holdfast.testing.waiting import eventually

Harm = Callable[[Node, Path], None]
COUNT = "i=0; while :; do i=$((i+1)); echo $i > /count; sleep .05; done"
FILES = (
    "echo new > /etc/new; echo changed > /etc/kept; rm /etc/doomed; rm -r /var/old;"
    " mkdir /var/old; echo young > /var/old/young; "
)
USR = "type=bind,src=/usr,dst=/usr,options=rbind:ro"
PROGRAM = """
import http.server, json, os, threading, time
ticks = [0]
def tick():
    while True:
        ticks[0] += 1
        time.sleep(0.02)
threading.Thread(target=tick, daemon=True).start()
child = os.fork()
if child == 0:
    n = 0
    while True:
        n += 1
        open("/child.new", "w").write(str(n))
        os.rename("/child.new", "/child")
        time.sleep(0.02)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps([ticks[0], child, os.getpid()]).encode())
    def log_message(self, *args):
        pass
http.server.HTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
"""
ASK = (
    "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8080', timeout=30)"
    ".read().decode(), open('/child').read())"
)


def counting(node: Node, name: str, least: int = 5, **options: tuple[str, ...]) -> None:
    """Start a container that writes files and counts, and wait until it has counted a little."""
    node.run(name, "sh", "-c", FILES + COUNT, **options)  # type: ignore[arg-type]
    eventually(lambda: count(node, name) >= least, f"{name} counts")


def record(node: Node, name: str) -> dict[str, object]:
    path = node.folder / f"run/containers{node.folder}/runc/default/@{name}/container.json"
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


def test_run_checkpoint_kill_run_again(node: Node, tmp_path: Path) -> None:
    mounts = (f"type=bind,src={tmp_path},dst=/tmp,options=rbind:rw",)
    held = COUNT.replace("sleep .05", "while [ -e /tmp/hold ]; do sleep .05; done; sleep .05")
    node.run("tc", "sh", "-c", FILES + held, mounts=mounts)
    eventually(lambda: count(node, "tc") >= 30, "it counts")
    images = node.checkpoint("tc")
    at = count(node, "tc")
    assert (images / "inventory.img").exists()  # where containerd asked for them
    eventually(lambda: count(node, "tc") > at, "it runs on after the checkpoint")
    node.exec("tc", "sh", "-c", "echo later > /after")
    node.remove("tc")
    assert len(node.checkpoints("tc")) == 1

    (tmp_path / "hold").touch()  # it waits until it was looked at, however long that takes
    node.run("tc", "sh", "-c", FILES + held, mounts=mounts)
    again = count(node, "tc")
    assert 30 <= again <= at + 40, (again, at)  # and not from 1
    assert node.exec("tc", "ls", "/etc").split() == ["kept", "new"]
    assert node.exec("tc", "cat", "/etc/kept") == "changed\n"
    assert node.exec("tc", "ls", "/var/old").split() == ["young"]
    assert "after" not in node.exec("tc", "ls", "/").split()
    assert record(node, "tc")["restored_from"] == node.checkpoints("tc")[0].name[1:]
    (tmp_path / "hold").unlink()
    eventually(lambda: count(node, "tc") > again, "it goes on counting")


def test_threads_children_a_listening_socket_and_a_bind_mount(node: Node, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("bound")
    mounts = (USR, f"type=bind,src={tmp_path},dst=/tmp,options=rbind:rw")

    def ask() -> tuple[list[int], int]:
        answer = node.exec("web", "/usr/bin/python3", "-c", ASK)
        listed, child = answer.rsplit(" ", 1)
        return json.loads(listed), int(child or 0)

    def run() -> None:
        node.run("web", "/usr/bin/python3", "-c", PROGRAM, mounts=mounts)

    run()
    eventually(
        lambda: node.ctr("task", "exec", "--exec-id", f"w{time.monotonic_ns()}", "web",
                         "/usr/bin/python3", "-c", ASK, check=False).returncode == 0,
        "it answers",
    )  # fmt: skip
    node.checkpoint("web", "--exit")  # one that ends the container
    eventually(lambda: node.status("web") == "STOPPED", "it has stopped")
    node.remove("web", signal=None)
    run()
    (ticks, child, pid), beats = ask()
    assert ticks > 5
    assert pid == 1

    def go_on() -> bool:
        (more_ticks, same_child, _), more_beats = ask()
        assert same_child == child
        return more_ticks > ticks and more_beats > beats

    eventually(go_on, "thread and child go on")
    assert node.exec("web", "cat", "/tmp/there") == "bound"
    assert record(node, "web")["cold"] is None


def test_a_terminal(node: Node) -> None:
    loop = "i=0; while :; do i=$((i+1)); echo tick $i; sleep .05; done"
    words = ["-a", str(node.folder / "containerd.sock"), *node.run_words("tty", "sh", "-c", loop)]
    words.insert(words.index("run") + 1, "--tty")

    def reach(least: int) -> int:
        at = 0
        while at < least:
            terminal.expect(r"tick (\d+)[\r\n]", timeout=30)
            at = int(terminal.match.group(1))
        return at

    terminal = pexpect.spawn("ctr", words, encoding="utf-8", env={**os.environ, "TERM": "xterm"})
    reach(10)
    node.checkpoint("tty")
    node.remove("tty")
    terminal.close(force=True)
    terminal = pexpect.spawn("ctr", words, encoding="utf-8", env={**os.environ, "TERM": "xterm"})
    try:
        first = reach(1)
        assert first >= 10, first
        reach(first + 5)
    finally:
        node.remove("tty")
        terminal.close(force=True)


def test_exit_code_0_removes_the_checkpoints_and_nothing_else_does(node: Node) -> None:
    script = "trap 'exit 0' TERM; " + COUNT.replace(
        "sleep .05", "[ -e /go ] && exit $(cat /go); sleep .05"
    )

    def run() -> None:
        node.run("job", "sh", "-c", script)
        eventually(lambda: count(node, "job") > 0, "it counts")

    def end(code: int) -> None:
        node.tell("job", "sh", "-c", f"echo {code} > /go.new; busybox mv /go.new /go")
        node.remove("job", signal=None)

    run()
    node.checkpoint("job")
    node.remove("job", signal="15")  # it ends with 0, but somebody asked for it
    assert len(node.checkpoints("job")) == 1
    run()
    end(3)
    assert len(node.checkpoints("job")) == 1
    run()
    node.checkpoint("job")
    node.checkpoint("job")
    # The policy's `keep` is 2; the first one has pages that the newer ones leave out.
    assert len(node.checkpoints("job")) == 3
    end(0)
    assert node.checkpoints("job") == []
    run()
    assert record(node, "job")["restored_from"] is None


def test_a_poisoned_checkpoint_is_not_restored_for_ever(node: Node, tmp_path: Path) -> None:
    node.set_policy("restore_limit = 2")
    mounts = (f"type=bind,src={tmp_path},dst=/tmp,options=rbind:rw",)
    script = COUNT.replace("sleep", "[ $i -gt 20 ] && [ -e /tmp/bad ] && exit 9; sleep")

    def crash() -> dict[str, object]:
        node.run("bad", "sh", "-c", script, mounts=mounts)
        about = record(node, "bad")
        eventually(lambda: node.status("bad") == "STOPPED", "it crashed")
        node.remove("bad", signal=None)
        return about

    node.run("bad", "sh", "-c", script, mounts=mounts)
    eventually(lambda: count(node, "bad") > 2, "it counts")
    node.checkpoint("bad")
    (tmp_path / "bad").touch()  # it does not crash before, however long all of that takes
    eventually(lambda: node.status("bad") == "STOPPED", "it crashed")
    node.remove("bad", signal=None)
    checkpoint = node.checkpoints("bad")[0].name[1:]
    crashed = [crash() for _ in range(2)]
    assert [each["restored_from"] for each in crashed] == [checkpoint] * 2, crashed
    cold = crash()
    assert cold["restored_from"] is None
    assert "failed 2 times" in str(cold["cold"])
    assert len(node.checkpoints("bad")) == 1  # kept, for whoever wants to look


def test_what_is_restored_does_nothing_before_it_is_started(node: Node, tmp_path: Path) -> None:
    """One that would end with its first instruction is restored, started, and then ends."""
    mounts = (f"type=bind,src={tmp_path},dst=/tmp,options=rbind:rw",)
    script = ": > /tmp/ready; while [ ! -e /tmp/go ]; do :; done; exit 9"
    node.run("hasty", "sh", "-c", script, mounts=mounts)
    eventually(lambda: (tmp_path / "ready").exists(), "it waits")
    node.checkpoint("hasty")
    (tmp_path / "go").touch()
    node.remove("hasty", signal=None)
    node.run("hasty", "sh", "-c", script, mounts=mounts)
    about = record(node, "hasty")
    assert about["restored_from"] == node.checkpoints("hasty")[0].name[1:], about
    node.remove("hasty", signal=None)


def test_a_policy_may_want_a_cold_start_after_a_crash(node: Node) -> None:
    node.set_policy('on_crash = "cold"')
    script = COUNT.replace("sleep", "[ -e /go ] && exit 9; sleep")
    node.run("fresh", "sh", "-c", script)
    eventually(lambda: count(node, "fresh") > 0, "it counts")
    node.checkpoint("fresh")
    node.tell("fresh", "sh", "-c", "echo > /go")
    node.remove("fresh", signal=None)
    node.run("fresh", "sh", "-c", script)
    assert "it crashed after its last checkpoint" in str(record(node, "fresh")["cold"])
    eventually(lambda: count(node, "fresh") > 0, "it counts")
    node.checkpoint("fresh")
    node.remove("fresh")
    node.run("fresh", "sh", "-c", script)  # a newer checkpoint, and no crash since
    assert record(node, "fresh")["restored_from"]


def _resign(node: Node, place: Path) -> None:
    """Sign a checkpoint again as it is now: what verification cannot find."""
    from blake3 import blake3

    from holdfast.store.keys import load_keyring

    manifest = json.loads((place / "manifest.json").read_text())
    for part in manifest["parts"]:
        data = (place / part["name"]).read_bytes()
        part["size"], part["blake3"] = len(data), blake3(data).hexdigest()
    text = json.dumps(manifest).encode()
    signer, mac = load_keyring({"HOLDFAST_HOME": str(node.folder / "home")}).sign(text)
    (place / "manifest.json").write_bytes(text)
    (place / "manifest.sig").write_text(f"{signer.hex()} {mac.hex()}\n")


def _truncate(node: Node, place: Path) -> None:
    pages = max(place.glob("memory/pages-*.img"), key=lambda path: path.stat().st_size)
    os.truncate(pages, pages.stat().st_size // 2)


def _flip(node: Node, place: Path) -> None:
    path = place / "files/upper"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _foreign_key(node: Node, place: Path) -> None:
    shutil.rmtree(node.folder / "home")  # another node's key is made on first use


def _foreign_container(node: Node, place: Path) -> None:
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["subject"] = "container/default/other"
    (place / "manifest.json").write_text(json.dumps(manifest))
    _resign(node, place)


def _truncate_and_sign(node: Node, place: Path) -> None:
    _truncate(node, place)
    _resign(node, place)


@pytest.fixture(scope="module")
def healthy(shared_node: Node) -> Path:
    """A copy of a good checkpoint of the container `sick`, and of the key that signed it."""
    shared_node.set_policy("")
    counting(shared_node, "sick")
    shared_node.checkpoint("sick")
    shared_node.remove("sick")
    copy = shared_node.folder / "healthy"
    shutil.copytree(shared_node.folder / "checkpoints/default/sick", copy / "sick")
    shutil.copytree(shared_node.folder / "home", copy / "home")
    return copy


def make_sick(node: Node, healthy: Path, harm: Harm) -> None:
    for name, place in (("sick", "checkpoints/default/sick"), ("home", "home")):
        shutil.rmtree(node.folder / place, ignore_errors=True)
        shutil.copytree(healthy / name, node.folder / place)
    harm(node, node.checkpoints("sick")[-1])


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (_truncate, "bytes, not"),
        (_flip, "is not what was written"),
        (_foreign_key, "foreign"),
        (_foreign_container, "belongs to container/default/other"),
        (_truncate_and_sign, "was stopped"),  # CRIU itself would spin for ever
    ],
)
def test_a_bad_checkpoint_is_refused_in_words(
    node: Node, healthy: Path, harm: Harm, words: str
) -> None:
    node.set_policy("restore_seconds = 6")
    make_sick(node, healthy, harm)
    began = time.monotonic()
    node.run("sick", "sh", "-c", FILES + COUNT)
    assert time.monotonic() - began < 30
    about = record(node, "sick")
    assert about["restored_from"] is None
    assert words in str(about["cold"])
    assert words in node.log()
    eventually(lambda: count(node, "sick") > 0, "it runs, from the beginning")
    assert node.exec("sick", "ls", "/etc").split() == ["kept", "new"]


def test_a_policy_may_want_no_cold_start(node: Node, healthy: Path) -> None:
    node.set_policy('on_failure = "fail"')
    make_sick(node, healthy, _flip)
    failed = node.run("sick", "sh", "-c", FILES + COUNT, check=False)
    assert failed.returncode != 0
    assert "is not what was written" in failed.stderr  # containerd found it in --log
    node.ctr("container", "rm", "sick", check=False)


def test_a_changed_container_starts_anew(node: Node) -> None:
    counting(node, "versions")
    node.checkpoint("versions")
    node.remove("versions")
    node.run("versions", "sh", "-c", "echo two > /version; sleep 100")
    assert "other args" in str(record(node, "versions")["cold"])


def test_the_identity_may_outlive_the_id(node: Node) -> None:
    env = ("HOLDFAST_CHECKPOINT=1", "HOLDFAST_NAME=shop")
    counting(node, "a1", least=20, env=env)
    node.checkpoint("a1")
    node.remove("a1")
    node.run("b2", "sh", "-c", FILES + COUNT, env=env)
    assert count(node, "b2") >= 20


def test_two_at_once_do_not_share_a_checkpoint(node: Node) -> None:
    env = ("HOLDFAST_CHECKPOINT=1", "HOLDFAST_NAME=twins")
    counting(node, "first", env=env)
    node.checkpoint("first")
    node.run("second", "sh", "-c", FILES + COUNT, env=env)
    assert "runs here already, as first" in str(record(node, "second")["cold"])


def test_in_a_store(node: Node) -> None:
    store = node.folder / "store"
    node.set_policy(f'mode = "store"\nstore = "{store}"')
    counting(node, "kept", least=20)
    node.checkpoint("kept")
    node.checkpoint("kept")
    node.remove("kept")
    with open_store(store, environ=node.environ) as opened:
        newest, first = opened.list("container/default/kept")
        assert newest.parents == (first.id,)
        names = {part.name for part in opened.show(newest).parts}
        assert {"files/upper", "config", "environment", "report", "memory/pstree.img"} <= names
        assert newest.stored_bytes < first.stored_bytes
        assert opened.value(newest, "environment")["container"]["args"][0] == "sh"
    told = subprocess.run(
        [sys.executable, "-m", "holdfast", "show", "container/default/kept", "--store", str(store)],
        capture_output=True,
        text=True,
        env=node.environ,
        check=True,
    ).stdout
    assert "files/upper" in told
    assert "not in the layer" in told  # its mounts are in the report
    node.run("kept", "sh", "-c", FILES + COUNT)
    assert count(node, "kept") >= 20
    assert record(node, "kept")["restored_from"] == newest.id
    assert node.exec("kept", "ls", "/etc").split() == ["kept", "new"]


def test_in_a_shared_path_with_a_working_directory(node: Node, tmp_path: Path) -> None:
    node.set_policy(f'mode = "shared"\nshared_path = "{tmp_path}/nfs"\nshared_workdir = "/scratch"')
    # By a rename: one that is frozen while it writes has counted all the same.
    script = "pwd > where; " + COUNT.replace("> /count", "> new; busybox mv new count")
    node.run("moving", "sh", "-c", script)
    work = tmp_path / "nfs/default/moving/work"
    eventually(lambda: (work / "count").exists(), "it counts")
    assert (work / "where").read_text() == "/scratch\n"
    node.checkpoint("moving", "--exit")
    node.remove("moving", signal=None)
    at = int((work / "count").read_text())
    node.run("moving", "sh", "-c", script)
    eventually(lambda: int((work / "count").read_text()) > at, "it goes on")
    assert record(node, "moving")["restored_from"]


def test_containers_that_did_not_opt_in_are_left_alone(node: Node) -> None:
    node.run("plain", "sh", "-c", COUNT, env=())
    eventually(lambda: count(node, "plain") > 0, "it counts")
    images = node.checkpoint("plain")
    assert (images / "inventory.img").exists()
    node.remove("plain")
    assert node.checkpoints("plain") == []
    assert not (node.folder / f"run/containers{node.folder}/runc/default/@plain").exists()


def test_systemds_cgroups_are_asked_for_as_by_plain_runc(node: Node) -> None:
    """containerd puts `--systemd-cgroup` among the options of every call. Where systemd is not
    there, as in these tests, it is told so in runc's own words, and nothing is left of it."""
    options = ["--runc-systemd-cgroup", "--cgroup", "system.slice:holdfast:asked"]
    done = node.run("asked", "sh", "-c", COUNT, options=options, check=False)
    if Path("/run/systemd/system").exists():
        assert done.returncode == 0, done.stderr
        eventually(lambda: count(node, "asked") > 0, "it counts")
        return
    assert done.returncode != 0
    assert "systemd" in done.stderr
    assert not list((node.folder / "run").rglob("marker"))


def test_the_image_that_containerd_makes_is_whole(node: Node) -> None:
    """`ctr container checkpoint` and `restore` work as they do with plain runc."""
    counting(node, "origin", least=20)
    node.ctr("container", "checkpoint", "--task", "--rw", "--image", "origin", "ck/origin:1")
    node.remove("origin")
    node.ctr("container", "restore", "--live", "--rw", "copy", "ck/origin:1")
    assert count(node, "copy") >= 20


def test_from_the_command_line(node: Node) -> None:
    def holdfast(*words: str) -> tuple[int, dict[str, object], str]:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "container", *words, "--json"],
            capture_output=True,
            text=True,
            env=node.environ,
            check=False,
        )
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    counting(node, "cli", least=20)
    code, taken, _ = holdfast("checkpoint", "cli", "--reason", "before lunch")
    assert code == 0
    assert taken["subject"] == "container/default/cli"
    assert 0 < float(str(taken["frozen_ms"])) < 60_000
    at = count(node, "cli")
    eventually(lambda: count(node, "cli") > at, "it goes on")

    generic = [sys.executable, "-m", "holdfast", "checkpoint", "container/default/cli"]
    assert (
        subprocess.run(generic, capture_output=True, env=node.environ, check=False).returncode == 0
    )

    code, _, _ = holdfast("checkpoint", "cli", "--stop")
    assert code == 0
    eventually(lambda: node.status("cli") == "STOPPED", "it has stopped")
    node.remove("cli", signal=None)
    await_tidied(node.folder)  # the newest is made whole, and the first of three is not kept
    (line,) = [
        each
        for each in cast(list[dict[str, object]], holdfast("list")[1]["containers"])
        if each["subject"] == "container/default/cli"
    ]
    assert (line["status"], line["checkpoint_count"], line["container_id"]) == ("frozen", 2, None)
    node.run("cli", "sh", "-c", FILES + COUNT)
    assert count(node, "cli") >= at
    listed = cast(list[dict[str, object]], holdfast("list")[1]["containers"])
    assert ("cli", "running") in [(each["container_id"], each["status"]) for each in listed]

    code, _, error = holdfast("checkpoint", "nobody")
    assert code == 3
    assert "nobody" in error
