"""A node that lacks something: what is ours gives way, and nobody loses a container."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.bundles import Bundle
from holdfast.testing.containerd import TRAMPOLINE
from holdfast.testing.waiting import eventually

COUNT = "i=0; while :; do i=$((i+1)); echo $i > /count; sleep .05; done"


@pytest.fixture
def bundle(tmp_path: Path) -> Iterator[Bundle]:
    it = Bundle(tmp_path / "container", ["sh", "-c", COUNT])
    try:
        yield it
    finally:
        it.close()


def said(bundle: Bundle) -> str:
    return (bundle.folder / "log.json").read_text()


def test_a_run_folder_that_cannot_be_written(bundle: Bundle) -> None:
    """Then it is a container like any other, and the engine's log says so."""
    run = bundle.folder / "sealed"
    run.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(run)], check=True)
    bundle.environ["HOLDFAST_RUN"] = str(run / "holdfast")
    bundle.runc("create")
    assert "not ours: its state cannot be written" in said(bundle)
    bundle.runc("start")
    eventually(lambda: bundle.count() > 0, "it counts")
    bundle.runc("delete", "--force")
    subprocess.run(["umount", str(run)], check=True)


def test_without_criu_a_container_runs_and_says_what_is_missing(bundle: Bundle) -> None:
    bundle.environ["HOLDFAST_CRIU"] = "/nowhere/criu"
    bundle.environ["HOLDFAST_ENGINES"] = "/nowhere"
    bundle.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    bundle.runc("create")
    bundle.runc("start")
    eventually(lambda: bundle.count() > 0, "it counts")
    failed = bundle.runc("checkpoint", check=False)
    assert failed.returncode == 1
    assert "criu" in json.loads(said(bundle).splitlines()[-1])["msg"]
    assert bundle.status() == "running"
    assert bundle.leftovers() == []
    at = bundle.count()
    eventually(lambda: bundle.count() > at, "it goes on")


def test_a_link_in_place_of_the_checkpoints_of_a_container(bundle: Bundle, tmp_path: Path) -> None:
    """Whoever could put it there is root; what it leads to must still be signed for this one."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "@01a1dfdf-ac53-748f-bd77-69a3e4ff8468").mkdir(parents=True)
    (elsewhere / "@01a1dfdf-ac53-748f-bd77-69a3e4ff8468/manifest.json").write_text("{}")
    place = bundle.folder / "checkpoints/runc"
    place.mkdir(parents=True)
    (place / "tc").symlink_to(elsewhere)
    bundle.runc("create")
    assert "started cold" in said(bundle)
    bundle.runc("start")
    eventually(lambda: bundle.count() > 0, "it counts")


def test_systemds_cgroups_are_asked_for(bundle: Bundle) -> None:
    """Where systemd is not there, as in these tests, runc refuses in its own words: so the option
    has reached it, and nothing of ours is left."""
    words = ["--systemd-cgroup", *bundle.words("create")]
    config = bundle.bundle / "config.json"
    changed = json.loads(config.read_text())
    changed["linux"]["cgroupsPath"] = "system.slice:holdfast:tc"
    config.write_text(json.dumps(changed))

    def create(program: str) -> tuple[int, str]:
        done = subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=bundle.environ,
            check=False,
        )
        return done.returncode, json.loads(said(bundle).splitlines()[-1])["msg"]

    if Path("/run/systemd/system").exists():
        assert create(str(TRAMPOLINE))[0] == 0
        return
    ours = create(str(TRAMPOLINE))
    assert ours[0] != 0
    assert "systemd" in ours[1]
    assert ours == create("runc")
    assert not list((bundle.folder / "run").rglob("marker"))
