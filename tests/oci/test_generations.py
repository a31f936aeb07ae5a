"""A second checkpoint of a service keeps what it wrote to since the first, and hardly more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.containerd import Node, await_tidied
from holdfast.testing.waiting import eventually

pytestmark = pytest.mark.timeout(400)  # many dumps, and machines may be busy

USR = "type=bind,src=/usr,dst=/usr,options=rbind:ro"
LAZY = ("HOLDFAST_CHECKPOINT=1", "HOLDFAST_NAME=lazy")
MEGABYTES, DIRTY = 48, 8
# Half of its memory is private and half shared with a child; each request writes new bytes to
# scattered pages of both, grows by a little, and says what a checksum of everything is.
SERVICE = f"""
import hashlib, mmap, os, random, socket
half = {MEGABYTES} * 1024 * 1024 // 2
private = mmap.mmap(-1, half, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
shared = mmap.mmap(-1, half)
for each in (private, shared):
    each[:] = os.urandom(half)
if os.fork() == 0:
    import time
    while True:
        time.sleep(3600)
listener = socket.socket()
listener.bind(("127.0.0.1", 8080))
listener.listen()
open("/ready", "w").close()
more = []
while True:
    peer, _ = listener.accept()
    request = peer.recv(10)
    if request == b"write":
        for each in (private, shared):
            for page in random.sample(range(half // 4096), {DIRTY} * 128):
                each[page * 4096 : (page + 1) * 4096] = os.urandom(4096)
        more.append(os.urandom(3 * 4096))
    if request == b"fill":
        for each in (private, shared):
            each[:] = bytes(range(256)) * (half // 256)
    total = hashlib.sha256(private[:] + shared[:] + b"".join(more)).hexdigest()
    peer.sendall(total.encode())
    peer.close()
"""
ASK = (
    "import socket, sys; s = socket.create_connection(('127.0.0.1', 8080)); "
    "s.sendall(sys.argv[1].encode()); print(s.recv(64).decode())"
)


def run(node: Node) -> None:
    node.run("service", "/usr/bin/python3", "-c", SERVICE, mounts=(USR,))
    eventually(lambda: "ready" in node.exec("service", "ls", "/").split(), "it is ready")


def ask(node: Node, request: str) -> str:
    return node.exec("service", "/usr/bin/python3", "-c", ASK, request).strip()


def holdfast(node: Node, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "container", *words, "--json"],
        capture_output=True,
        text=True,
        env=node.environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def checkpoint(node: Node, name: str = "service", *options: str) -> dict[str, Any]:
    return holdfast(node, "checkpoint", name, *options)


@pytest.mark.parametrize("mode", ["local", "store"])
def test_an_increment_is_what_was_written(node: Node, mode: str) -> None:
    node.set_policy(f'mode = "{mode}"\nstore = "{node.folder}/generations"')
    run(node)
    whole = checkpoint(node)
    assert int(str(whole["written_bytes"])) >= MEGABYTES * 1024 * 1024
    ask(node, "write")
    taken = checkpoint(node)
    assert float(str(taken["frozen_ms"])) > 0
    assert int(str(taken["written_bytes"])) <= 1.1 * DIRTY * 1024 * 1024
    total = ask(node, "write")
    checkpoint(node, "service", "--stop")
    eventually(lambda: node.status("service") == "STOPPED", "it has stopped")
    node.remove("service", signal=None)
    run(node)
    assert ask(node, "read") == total  # through a line of increments, every byte
    checkpoint(node)  # shared memory has a new number now, so it is kept whole once
    ask(node, "write")
    again = checkpoint(node)  # and then one that was restored goes on with increments
    assert int(str(again["written_bytes"])) <= 1.1 * DIRTY * 1024 * 1024


@pytest.fixture
def cloning_disk(node: Node, tmp_path: Path) -> Iterator[None]:
    """The node's checkpoints are on a file system in which files can share blocks."""
    image, place = tmp_path / "disk", node.folder / "checkpoints"
    with image.open("wb") as file:
        file.truncate(400 * 1024 * 1024)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", str(image)], check=True)
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    yield
    await_tidied(node.folder)
    subprocess.run(["umount", str(place)], check=True)


def known(node: Node) -> dict[str, object]:
    """What the wrapper knows about the service."""
    state = node.folder / f"run/containers{node.folder}/runc/default/@service/container.json"
    found: dict[str, object] = json.loads(state.read_text())
    return found


def lazily_again(node: Node, *, stop: bool) -> None:
    """Have the service written to, frozen, and back again before its memory is."""
    total = ask(node, "write")
    checkpoint(node, "service", *["--stop"] * stop)
    if stop:
        eventually(lambda: node.status("service") == "STOPPED", "it has stopped")
    node.remove("service", signal=None if stop else "9")
    node.run("service", "/usr/bin/python3", "-c", SERVICE, mounts=(USR,), env=LAZY)
    assert known(node)["pages"] is not None
    assert "restored eagerly" not in node.log()
    checkpoint(node)
    assert ask(node, "read") == total


def test_a_lazy_restore_answers_first_and_is_right(node: Node) -> None:
    """And the next checkpoint waits until all of the memory is there."""
    node.set_policy('lazy = "auto"\nlazy_bytes = 1\nline = 1')
    node.run("service", "/usr/bin/python3", "-c", SERVICE, mounts=(USR,), env=LAZY)
    eventually(lambda: "ready" in node.exec("service", "ls", "/").split(), "it is ready")
    lazily_again(node, stop=True)


@pytest.mark.usefixtures("cloning_disk")
def test_an_increment_is_restored_lazily_where_files_share_blocks(node: Node) -> None:
    node.set_policy('lazy = "auto"\nlazy_bytes = 1')
    node.run("service", "/usr/bin/python3", "-c", SERVICE, mounts=(USR,), env=LAZY)
    eventually(lambda: "ready" in node.exec("service", "ls", "/").split(), "it is ready")
    checkpoint(node)
    lazily_again(node, stop=False)  # for then it would be made whole
    restored = node.folder / f"checkpoints/default/lazy/@{known(node)['restored_from']}"
    assert (restored / "memory/parent").is_symlink()
    node.remove("service")


def test_a_line_is_folded_behind_the_containers_back(node: Node) -> None:
    """However often it is frozen, it never writes more than what is dirty; and not only the last
    one stays what it was."""
    node.set_policy("line = 3")
    run(node)
    checkpoint(node)
    for _ in range(4):
        ask(node, "write")
        taken = checkpoint(node)
        assert int(str(taken["written_bytes"])) <= 1.1 * DIRTY * 1024 * 1024
        await_tidied(node.folder)
        assert len(node.checkpoints("service")) <= 3
    assert "compacted" in node.log()
    total = ask(node, "read")
    checkpoint(node, "service", "--stop")
    eventually(lambda: node.status("service") == "STOPPED", "it has stopped")
    node.remove("service", signal=None)
    await_tidied(node.folder)
    older, newest = node.checkpoints("service")
    assert not (newest / "memory/parent").is_symlink()  # it could be restored lazily now
    assert not (older / "memory/parent").is_symlink()
    run(node)
    assert known(node)["restored_from"] == newest.name[1:]
    assert ask(node, "read") == total


def test_put_away_compressed_and_back_again(node: Node) -> None:
    run(node)
    checkpoint(node)
    total = ask(node, "fill")  # with what can be compressed
    taken = checkpoint(node, "service", "--stop")
    eventually(lambda: node.status("service") == "STOPPED", "it has stopped")
    node.remove("service", signal=None)
    await_tidied(node.folder)
    newest = node.checkpoints("service")[-1]

    def size() -> int:
        return sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())

    raw = size()
    done = holdfast(node, "compact", "service", "--zstd")
    assert done["compressed"] == [taken["id"]]
    assert list(newest.glob("memory/pages-*.img.zst"))
    assert raw - size() > 0.9 * MEGABYTES * 1024 * 1024  # a child still has what was there before
    run(node)
    assert known(node)["restored_from"] == newest.name[1:]
    assert ask(node, "read") == total
    ask(node, "write")
    leaning = checkpoint(node)  # on what is compressed
    assert int(str(leaning["written_bytes"])) <= 1.1 * (DIRTY + MEGABYTES / 2) * 1024 * 1024


def test_an_increment_without_its_base_is_refused_and_the_next_is_whole(node: Node) -> None:
    script = ": > /ready; while :; do sleep 1; done"
    node.run("leaning", "sh", "-c", script)
    eventually(lambda: "ready" in node.exec("leaning", "ls", "/").split(), "it is ready")
    checkpoint(node, "leaning")
    checkpoint(node, "leaning")
    first, second = node.checkpoints("leaning")
    pages = max(first.glob("memory/pages-*.img"), key=lambda path: path.stat().st_size)
    damaged = bytearray(pages.read_bytes())
    damaged[100] ^= 1
    pages.write_bytes(damaged)
    assert (second / "memory/parent").is_symlink()
    checkpoint(node, "leaning", "--stop")  # what it would lean on is verified before
    await_tidied(node.folder)
    newest = node.checkpoints("leaning")[-1]
    assert not (newest / "memory/parent").exists()
    node.remove("leaning", signal=None)
    node.run("leaning", "sh", "-c", script)
    log = node.log().splitlines()
    assert json.loads(log[-1])["msg"] == "restored"
    assert json.loads(log[-1])["id"] == newest.name[1:]
