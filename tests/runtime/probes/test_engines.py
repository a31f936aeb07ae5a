"""The probes against the real engines, and against programs that only look like them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.runtime.finding import Finding, Status
from holdfast.runtime.probes import engines

Probe = Callable[[dict[str, str]], Finding]


def trials() -> set[Path]:
    """The folders of our own trials; tests beside us may have theirs."""
    return set(Path(tempfile.gettempdir()).glob(f"holdfast-trial-{os.getpid()}-*"))


@pytest.mark.parametrize(
    ("probe", "shown"),
    [
        (engines.probe_runc, "a container ran"),
        (engines.probe_criu, "frozen and brought back"),
        (engines.probe_gvisor, "checkpointed"),
        (engines.probe_bubblewrap, "namespaces of its own"),
    ],
)
def test_the_engine_works_and_leaves_nothing(probe: Probe, shown: str) -> None:
    finding = probe(dict(os.environ))
    assert finding.status is Status.OK, finding.detail
    assert shown in finding.detail
    assert trials() == set()


@pytest.mark.parametrize(
    ("probe", "variable"),
    [
        (engines.probe_runc, "HOLDFAST_RUNC"),
        (engines.probe_criu, "HOLDFAST_CRIU"),
        (engines.probe_gvisor, "HOLDFAST_RUNSC"),
    ],
)
def test_a_variable_that_names_nothing(probe: Probe, variable: str) -> None:
    finding = probe({**os.environ, variable: "/nonexistent/engine"})
    assert finding.status is Status.BROKEN
    assert variable in finding.detail
    assert finding.mends == f"unset {variable}"


def test_an_engine_that_is_not_here(tmp_path: Path) -> None:
    bare = {"HOLDFAST_ENGINES": str(tmp_path), "PATH": str(tmp_path)}
    finding = engines.probe_gvisor(bare)
    assert finding.status is Status.MISSING
    assert finding.mends == "make setup"


def test_a_program_that_only_looks_like_runc(tmp_path: Path) -> None:
    """A version is no proof: what cannot run a container is broken."""
    fake = tmp_path / "runc"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "runc version 9.9" && exit 0\nexit 1\n'
    )
    fake.chmod(0o755)
    finding = engines.probe_runc({**os.environ, "HOLDFAST_RUNC": str(fake)})
    assert finding.status is Status.BROKEN
    assert "did not run" in finding.detail


def test_an_engine_that_fails_at_once(tmp_path: Path) -> None:
    fake = tmp_path / "criu"
    fake.write_text("#!/bin/sh\necho 'cannot load libprotobuf' >&2\nexit 127\n")
    fake.chmod(0o755)
    finding = engines.probe_criu({**os.environ, "HOLDFAST_CRIU": str(fake)})
    assert finding.status is Status.BROKEN
    assert "libprotobuf" in finding.detail
    assert finding.mends == "unset HOLDFAST_CRIU"


def test_the_last_error_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "dump.log"
    assert engines.last_error(log) is None
    log.write_text("(00.1) fine\n(00.2) Error (criu/x.c:1): first\n(00.3) Error (criu/y.c:2): it\n")
    assert engines.last_error(log) == "(00.3) Error (criu/y.c:2): it"
