"""One command: what is read from it once, and what is done without any engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import UsageError
from holdfast.oci import RuncHandler
from holdfast.oci.state import ContainerState, Record
from holdfast.testing.containerd import TRAMPOLINE


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "policy.toml").write_text(f'log = "{tmp_path}/runc.log"')
    return {
        "HOLDFAST_RUN": str(tmp_path / "run"),
        "HOLDFAST_POLICY": str(tmp_path / "policy.toml"),
        "HOLDFAST_HOME": str(tmp_path / "home"),
    }


def waiting(environ: dict[str, str]) -> ContainerState:
    """A container that was revived and not started yet."""
    state = ContainerState(Path(environ["HOLDFAST_RUN"]), "/r/ns", "tc")
    state.mark(Record(subject="container/ns/tc", root="/r/ns", id="tc", bundle="/b", mode="local"))
    state.unstarted = True
    return state


def test_the_command_is_read_once(environ: dict[str, str]) -> None:
    waiting(environ)
    handler = RuncHandler(environ)
    with pytest.raises(UsageError):
        _ = handler.args
    assert handler.handle(["--root", "/r/ns", "pause", "tc"]) == 0
    assert handler.current_args is not None
    assert (handler.current_args.subcommand, handler.container_id) == ("pause", "tc")
    assert handler.image_path is None


def test_state_is_for_root_alone_and_goes_away(environ: dict[str, str]) -> None:
    state = waiting(environ)
    run = Path(environ["HOLDFAST_RUN"])
    assert all(path.stat().st_mode & 0o077 == 0 for path in (run, *run.rglob("*")))
    other = ContainerState(run, "/r/ns", "other")
    other.mark(
        Record(subject="container/ns/o", root="/r/ns", id="other", bundle="/b", mode="local")
    )
    state.remove()
    assert not state.marked
    assert other.marked
    other.remove()
    assert list(run.iterdir()) == []


def test_a_container_of_the_same_name_begins_anew(environ: dict[str, str]) -> None:
    state = waiting(environ)
    again = waiting(environ)
    again.unstarted = False
    assert not state.unstarted
    assert again.record == state.record


def test_where_no_state_can_be_written_runc_goes_on(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "run").touch()  # a file in the place of the folder
    (tmp_path / "config.json").write_text('{"process": {"env": ["HOLDFAST_CHECKPOINT=1"]}}')
    full = {
        **os.environ,
        **environ,
        "HOLDFAST_PYTHON": sys.executable,
        "HOLDFAST_RUNC": "/bin/echo",
    }
    words = ["--root", str(tmp_path / "r"), "create", "--bundle", str(tmp_path), "tc"]
    done = subprocess.run(
        [TRAMPOLINE, *words], env=full, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == words
    assert "cannot be written" in (tmp_path / "runc.log").read_text()
