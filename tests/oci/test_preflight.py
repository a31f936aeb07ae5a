"""What cannot be frozen is said before, and what CRIU must be told is told."""

from __future__ import annotations

import json
import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import Unsupported
from holdfast.oci.likeness import check_likeness, cpu_features
from holdfast.oci.preflight import GHOST, Sight, judge, look
from holdfast.testing.containerd import Node
from holdfast.testing.networks import Network
from holdfast.testing.processes import running
from holdfast.testing.waiting import eventually

USR = "type=bind,src=/usr,dst=/usr,options=rbind:ro"
RING = """
import ctypes, os
params = (ctypes.c_char * 120)()
ring = ctypes.CDLL(None, use_errno=True).syscall(425, 4, params)
assert ring >= 0, os.strerror(ctypes.get_errno())
"""
TANGLED = f"""
import socket, time
{RING}
peer = socket.socket(socket.AF_UNIX)
peer.connect("/srv/door")
open("/ready", "w").close()
while True:
    time.sleep(0.1)
"""
HELPED = """
import os, socket, time
big = open("/big", "w+b")
big.write(b"x" * 3_000_000)
big.flush()
os.unlink("/big")
listener = socket.create_server(("127.0.0.1", 8080))
client = socket.create_connection(("127.0.0.1", 8080))
server, _ = listener.accept()
inner, other = socket.socketpair()
client.settimeout(0.1)
count = 0
open("/ready", "w").close()
while True:
    count += 1
    big.seek(0)
    inner.send(b"!")
    alive = other.recv(1) == b"!"
    try:
        server.send(b"?")
        answer = client.recv(1) or b"closed"
    except TimeoutError:
        answer = b"late"
    except OSError:
        answer = b"closed"
    with open("/state.new", "w") as out:
        out.write(f"{count} {len(big.read())} {alive} {answer.decode()}")
    os.rename("/state.new", "/state")
    time.sleep(0.1)
"""


def test_what_follows_from_what_was_seen() -> None:
    assert judge(Sight()) == judge(Sight(own_network=False))
    assert judge(Sight()).clear
    stopped = judge(Sight(rings=(7,), outside=(8, 9)))
    assert not stopped.clear
    assert "io_uring" in stopped.words()
    assert "8, 9" in stopped.words()
    assert judge(Sight(connections=2)).lines == ("tcp-close",)
    assert judge(Sight(connections=2, own_network=False)).options == ("--tcp-established",)
    assert judge(Sight(deleted={"/a (deleted)": 10})).lines == ()
    assert judge(Sight(deleted={"/a": 10, "/b": 5 * GHOST})).lines == (f"ghost-limit {6 * GHOST}",)


def test_rings_sockets_and_deleted_files_are_seen() -> None:
    ours, theirs = socket.socketpair()
    program = f"{RING}\nimport sys\nprint('ready', flush=True)\nsys.stdin.read()"
    with running(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[theirs.fileno()],
    ) as process:
        theirs.close()
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        sight = look([process.pid, 2**22 - 1], own_network=True)
        process.communicate()
    ours.close()
    assert sight.rings == (process.pid,)
    assert sight.outside == (process.pid,)


def test_another_processor_is_refused() -> None:
    mine = cpu_features()
    assert mine
    environment = {"machine": platform.machine(), "cpu": [*mine, "avx9999"]}
    with pytest.raises(Unsupported, match="avx9999"):
        check_likeness(environment, {})
    assert cpu_features("flags\t\t: fpu avx2 sse4_2 constant_tsc bmi1") == [
        "avx2",
        "bmi1",
        "sse4_2",
    ]


def holdfast(node: Node, *words: str) -> tuple[int, dict[str, object], str]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "container", *words, "--json"],
        capture_output=True,
        text=True,
        env=node.environ,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_what_stands_in_the_way_is_said_in_words(node: Node, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "door"))
        door.listen()
        mounts = (USR, f"type=bind,src={tmp_path},dst=/srv,options=rbind:rw")
        node.run("tangled", "/usr/bin/python3", "-c", TANGLED, mounts=mounts)
        eventually(lambda: "ready" in node.exec("tangled", "ls", "/").split(), "it is ready")
        peer, _ = door.accept()
        code, told, _ = holdfast(node, "preflight", "tangled")
        assert code == 9
        assert told["clear"] is False
        code, _, error = holdfast(node, "checkpoint", "tangled")
        assert code == 7
        assert "io_uring" in error
        assert "unix socket" in error
        assert node.status("tangled") == "RUNNING"
        peer.close()


def test_what_can_be_helped_is(node: Node) -> None:
    """A large file without a name, and a connection whose network goes away."""

    def state() -> list[str]:
        return node.exec("helped", "cat", "/state").split()

    def run() -> None:
        node.run("helped", "/usr/bin/python3", "-c", HELPED, mounts=(USR,))

    run()
    eventually(lambda: "state" in node.exec("helped", "ls", "/").split(), "it is ready")
    eventually(lambda: state()[1:] == ["3000000", "True", "?"], "it is answered in time")
    code, told, _ = holdfast(node, "preflight", "helped")
    assert (code, told["clear"]) == (0, True)
    assert "tcp-close" in str(told["options"])
    code, _, error = holdfast(node, "checkpoint", "helped", "--stop")
    assert code == 0, error
    eventually(lambda: node.status("helped") == "STOPPED", "it has stopped")
    node.remove("helped", signal=None)
    run()
    eventually(lambda: state()[1:] == ["3000000", "True", "closed"], "it goes on, alone")
    assert int(state()[0]) > 1


def test_connections_stay_where_the_network_outlives_the_container(node: Node) -> None:
    """As one that an engine or CNI made does: both ends go on, and nothing was sent twice."""
    network = Network()
    joined = ("--with-ns", f"network:{network.path}")

    def state() -> list[str]:
        return node.exec("joined", "cat", "/state").split()

    def run() -> None:
        node.run("joined", "/usr/bin/python3", "-c", HELPED, mounts=(USR,), options=joined)

    try:
        run()
        eventually(lambda: "state" in node.exec("joined", "ls", "/").split(), "it is ready")
        code, told, _ = holdfast(node, "preflight", "joined")
        assert (code, told["clear"]) == (0, True)
        assert "--tcp-established" in str(told["options"])
        at = int(state()[0])
        code, _, error = holdfast(node, "checkpoint", "joined", "--stop")
        assert code == 0, error
        eventually(lambda: node.status("joined") == "STOPPED", "it has stopped")
        node.remove("joined", signal=None)
        run()
        eventually(lambda: int(state()[0]) > at + 2, "it goes on")
        eventually(lambda: state()[1:] == ["3000000", "True", "?"], "it is answered in time")
        node.remove("joined")
    finally:
        network.close()
