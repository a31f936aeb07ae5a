from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.runtime import engines


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A machine with a criu in all three places."""
    program(tmp_path / "prefix/bin/criu")
    program(tmp_path / "path/criu")
    program(tmp_path / "mine/criu")
    return {"HOLDFAST_ENGINES": str(tmp_path / "prefix"), "PATH": str(tmp_path / "path")}


def test_the_variable_wins(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["HOLDFAST_CRIU"] = str(tmp_path / "mine/criu")
    found = engines.find("criu", environ)
    assert found == engines.Engine("criu", tmp_path / "mine/criu", "HOLDFAST_CRIU")


def test_then_the_prefix(tmp_path: Path, environ: dict[str, str]) -> None:
    found = engines.find("criu", environ)
    assert found == engines.Engine("criu", tmp_path / "prefix/bin/criu", "prefix")


def test_then_the_path(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "prefix/bin/criu").unlink()
    found = engines.find("criu", environ)
    assert found == engines.Engine("criu", tmp_path / "path/criu", "path")


def test_nothing_replaces_an_engine_that_the_user_named(environ: dict[str, str]) -> None:
    environ["HOLDFAST_CRIU"] = "/nonexistent/criu"
    assert engines.find("criu", environ) is None


def test_a_name_on_the_path_will_do_as_a_variable(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["HOLDFAST_RUNC"] = "other-runc"
    program(tmp_path / "path/other-runc")
    found = engines.find("runc", environ)
    assert found is not None
    assert found.program == tmp_path / "path/other-runc"


def test_runc_finds_the_same_criu(tmp_path: Path, environ: dict[str, str]) -> None:
    """runc looks `criu` up on PATH, so PATH must lead to the one that was found."""
    folders = engines.environment(environ)["PATH"].split(os.pathsep)
    assert folders[0] == str(tmp_path / "prefix/bin")
    environ["HOLDFAST_CRIU"] = str(tmp_path / "mine/criu")
    assert engines.environment(environ)["PATH"].split(os.pathsep)[0] == str(tmp_path / "mine")


def test_the_prefix_that_the_set_up_recorded(tmp_path: Path) -> None:
    record = tmp_path / "holdfast-engines"
    record.write_text("/somewhere/else\n")
    assert engines.prefix({}, record) == Path("/somewhere/else")
    assert engines.prefix({"HOLDFAST_ENGINES": "/named"}, record) == Path("/named")
    record.unlink()
    assert engines.prefix({}, record) == engines.DEFAULT_PREFIX
