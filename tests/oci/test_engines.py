"""Docker and Podman through the same wrapper."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.containerd import Node
from holdfast.testing.counters import count
from holdfast.testing.daemons import IMAGE, Docker, Engine, Podman
from holdfast.testing.waiting import eventually

# Many dumps, and machines may be busy. `make soak` installs both engines.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]

COUNT = (
    "echo new > /etc/new; rm /etc/doomed;"
    " i=0; while :; do i=$((i+1)); echo $i > /count; sleep .1; done"
)


@pytest.fixture(params=[Docker, Podman], ids=["docker", "podman"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    folder = Path(tempfile.mkdtemp(prefix="hf-"))  # Podman wants its paths short
    made: Engine = request.param(folder / "e")
    try:
        yield made
    finally:
        made.close()
    folder.rmdir()  # nothing is left, and nothing mounted


def holdfast(engine: Engine, *words: str) -> str:
    program = [sys.executable, "-m", "holdfast", "container", *words]
    done = subprocess.run(program, capture_output=True, text=True, env=engine.environ, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_stopped_by_a_checkpoint_and_started_again(engine: Engine) -> None:
    engine.run("shop", "sh", "-c", COUNT)
    eventually(lambda: count(engine, "shop") > 10, "it counts")
    at = count(engine, "shop")
    whole = engine.call("inspect", "-f", "{{.Id}}", "shop").strip()
    listed = holdfast(engine, "list")
    assert whole[:12] in listed
    assert whole not in listed
    holdfast(engine, "checkpoint", whole[:12], "--stop")
    eventually(lambda: not engine.running("shop"), "it has stopped")
    engine.call("start", "shop")
    assert count(engine, "shop") >= at
    assert engine.exec("shop", "ls", "/etc").split().count("new") == 1
    assert "doomed" not in engine.exec("shop", "ls", "/etc").split()
    assert "restored from" in holdfast(engine, "list")

    # And a new container of the same name: its layer is a new one, too.
    holdfast(engine, "finalize")
    eventually(lambda: not engine.running("shop"), "it has stopped")
    engine.call("rm", "shop")
    engine.run("shop", "sh", "-c", COUNT)
    assert count(engine, "shop") >= at
    assert "doomed" not in engine.exec("shop", "ls", "/etc").split()


@pytest.fixture
def podman() -> Iterator[Podman]:
    folder = Path(tempfile.mkdtemp(prefix="hf-"))
    made = Podman(folder / "e")
    try:
        yield made
    finally:
        made.close()
    folder.rmdir()


def test_from_containerd_to_podman(podman: Podman, tmp_path: Path) -> None:
    """Through an archive that checkpointctl reads, too."""
    file = tmp_path / "shop.tar"
    node = Node(tmp_path / "node")
    try:
        node.run("shop", "sh", "-c", COUNT)
        eventually(lambda: count(node, "shop") >= 10, "it has counted to ten")
        node.checkpoint("shop")
        image = podman.call("image", "inspect", "-f", "{{.Id}}", "holdfast-test").strip()
        program = [sys.executable, "-m", "holdfast", "container", "export", "shop", str(file)]
        named = ["--image", "docker.io/library/holdfast-test:latest", "--image-id", image]
        subprocess.run([*program, *named], env=node.environ, check=True, capture_output=True)
    finally:
        node.close()
    done = subprocess.run(
        ["checkpointctl", "inspect", str(file), "--all"],
        capture_output=True,
        text=True,
        env=podman.environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for word in ("shop", "holdfast-test", "Engine: Podman", "Pages written", "[root]", "/proc"):
        assert word in done.stdout
    podman.call("container", "restore", "--import", str(file))
    assert count(podman, "shop") >= 10
    files = podman.exec("shop", "ls", "/etc").split()
    assert "new" in files
    assert "doomed" not in files
    at = count(podman, "shop")
    eventually(lambda: count(podman, "shop") > at, "it goes on")


def test_from_podman(podman: Podman, tmp_path: Path) -> None:
    """What Podman exported by itself goes on in a container that opts in."""
    file = tmp_path / "shop.tar.zst"
    podman.call("run", "-d", "--name", "shop", IMAGE, "sh", "-c", COUNT)
    eventually(lambda: count(podman, "shop") > 10, "it counts")
    at = count(podman, "shop")
    podman.call("container", "checkpoint", "--export", str(file), "shop")
    podman.call("rm", "shop")
    holdfast(podman, "import", str(file), "--trust")
    podman.run("shop", "sh", "-c", COUNT)
    assert count(podman, "shop") >= at
    assert "doomed" not in podman.exec("shop", "ls", "/etc").split()
    assert "restored from" in holdfast(podman, "list")


def goes_on(docker: Docker) -> bool:
    """Docker refuses now and then what it has just made itself, with plain runc as well: a copy in
    its containerd is collected some time later (moby issue 42900)."""
    try:
        docker.call("start", "--checkpoint", "first", "shop")
    except AssertionError as error:
        if "failed to upload checkpoint to containerd" in str(error) and "already exists" in str(
            error
        ):
            return False
        raise
    return True


def test_the_engines_own_checkpoints(engine: Engine, tmp_path: Path) -> None:
    engine.run("shop", "sh", "-c", COUNT)
    eventually(lambda: count(engine, "shop") > 10, "it counts")
    if isinstance(engine, Docker):
        engine.call("checkpoint", "create", "shop", "first")
        eventually(lambda: not engine.running("shop"), "it has stopped")
        eventually(lambda: goes_on(engine), "Docker has tidied up what it copied before")
    else:
        archive = tmp_path / "shop.tar"
        engine.call("container", "checkpoint", "--export", str(archive), "-c", "none", "shop")
        with tarfile.open(archive) as opened:
            names = set(opened.getnames())
        assert {"stats-dump", "config.dump", "checkpoint/inventory.img"} <= names
        engine.call("rm", "shop")
        engine.call("container", "restore", "--import", str(archive))
    assert count(engine, "shop") > 10
