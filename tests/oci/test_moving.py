"""A container moves between two nodes through an object store: never on both, and only what is
missing travels."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.store import open_store
from holdfast.store.keys import load_keyring
from holdfast.testing.containerd import Node
from holdfast.testing.counters import count
from holdfast.testing.networks import Network
from holdfast.testing.servers import Server
from holdfast.testing.waiting import eventually

pytestmark = pytest.mark.timeout(400)  # many dumps, and machines may be busy

USR = "type=bind,src=/usr,dst=/usr,options=rbind:ro"
MEGABYTES = 24
PROGRAM = f"""
import os, time
memory = bytearray(os.urandom({MEGABYTES} << 20))
count = 0
while True:
    count += 1
    memory[: 1 << 20] = os.urandom(1 << 20)
    open("/count.new", "w").write(str(count))
    os.rename("/count.new", "/count")
    time.sleep(0.5)
"""


@pytest.fixture
def nodes(s3: Server, prefix: str, tmp_path: Path) -> Iterator[tuple[Node, Node, list[Network]]]:
    """Two containerds, each in a network of its own, with one bucket and one key."""
    load_keyring({"HOLDFAST_HOME": str(tmp_path / "keys")})
    environ = {**s3.environ, "HOLDFAST_KEY_FILE": str(tmp_path / "keys/key")}
    with open_store(f"s3://bucket/{prefix}", environ={**environ, "HOLDFAST_HOME": str(tmp_path)}):
        pass  # it is there
    networks: list[Network] = []
    made: list[Node] = []
    try:
        for name in ("a", "b"):
            networks.append(Network())
            networks[-1].door(s3.port)
            policy = f'mode = "store"\nstore = "s3://bucket/{prefix}"\nlease_wait = 1'
            made.append(Node(tmp_path / name, policy, networks[-1], environ))
        yield made[0], made[1], networks
    finally:
        for node in made:
            node.close()
        for network in networks:
            network.close()


def run(node: Node) -> dict[str, object]:
    node.run("mover", "/usr/bin/python3", "-c", PROGRAM, mounts=(USR,))
    path = node.folder / f"run/containers{node.folder}/runc/default/@mover/container.json"
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


def checkpoint(
    node: Node, network: Network, *options: str, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """On that node: in its network, with its environment."""
    words = [sys.executable, "-m", "holdfast", "container", "checkpoint", "mover", "--json"]
    done = subprocess.run(
        [*network.prefix, *words, *options],
        capture_output=True,
        text=True,
        env=node.environ,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def test_there_and_back_again(nodes: tuple[Node, Node, list[Network]]) -> None:
    a, b, (net_a, net_b) = nodes
    whole = MEGABYTES << 20

    def travelled(what: Callable[[], object], network: Network) -> tuple[int, int]:
        sent, received = network.sent, network.received
        what()
        return network.sent - sent, network.received - received

    run(a)
    eventually(lambda: count(a, "mover") > 1, "it counts")
    up, _ = travelled(lambda: checkpoint(a, net_a), net_a)
    assert up > whole
    at = count(a, "mover")
    up, _ = travelled(lambda: checkpoint(a, net_a, "--stop"), net_a)
    assert up < whole / 4  # one megabyte is new each half second
    a.remove("mover", signal=None)

    _, down = travelled(lambda: run(b), net_b)
    assert whole < down < 1.5 * whole
    assert count(b, "mover") >= at
    eventually(lambda: count(b, "mover") > at + 1, "it goes on")
    up, _ = travelled(lambda: checkpoint(b, net_b, "--stop"), net_b)
    assert up < whole / 4
    b.remove("mover", signal=None)

    _, down = travelled(lambda: run(a), net_a)
    assert down < whole / 2  # what it had uploaded itself is still there
    assert count(a, "mover") > at


@pytest.mark.soak
def test_one_container_is_not_on_two_nodes(nodes: tuple[Node, Node, list[Network]]) -> None:
    a, b, (net_a, net_b) = nodes
    run(a)
    eventually(lambda: count(a, "mover") > 0, "it counts")
    checkpoint(a, net_a)
    about = run(b)
    assert about["restored_from"] is None
    assert "in use by" in str(about["cold"])
    refused = checkpoint(b, net_b, check=False)
    assert refused.returncode == 4
    assert "in use by" in refused.stderr
    b.remove("mover")
    checkpoint(a, net_a)  # its lease is still its own

    # The whole node goes: no word to anybody, and its lease runs out.
    a.end_leases()
    about = run(b)
    assert about["restored_from"] is not None, about["cold"]
    late = checkpoint(a, net_a, check=False)  # it comes back and believes that it may go on
    assert late.returncode == 4, late.stderr
    assert "in use by" in late.stderr
    eventually(lambda: count(a, "mover") > 0, "and it was not harmed")
    checkpoint(b, net_b)
