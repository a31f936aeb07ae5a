from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from holdfast.runtime.finding import Status
from holdfast.runtime.probes import host


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ((3, 10), Status.BROKEN),
        ((3, 11), Status.OK),
        ((3, 13), Status.OK),
        ((3, 14), Status.BROKEN),
    ],
)
def test_pythons(version: tuple[int, int], status: Status) -> None:
    finding = host.judge_python(version, "x", "/usr/bin/python3")
    assert finding.status is status
    assert (finding.mends is None) == (status is Status.OK)


@pytest.mark.parametrize(
    ("system", "release", "status"),
    [
        ("Linux", "6.18.5", Status.OK),
        ("Linux", "6.1.0-31-amd64", Status.LIMITED),
        ("Linux", "4.19.0", Status.LIMITED),
        ("Darwin", "24.1.0", Status.LIMITED),
    ],
)
def test_kernels(system: str, release: str, status: Status) -> None:
    assert host.judge_kernel(system, release).status is status


def test_cgroups_are_told_by_what_is_mounted(tmp_path: Path) -> None:
    assert host.probe_cgroups(tmp_path).status is Status.MISSING
    (tmp_path / "memory").mkdir()
    assert host.probe_cgroups(tmp_path).detail == "version 1"
    (tmp_path / "unified").mkdir()
    assert "version 2 beside it" in host.probe_cgroups(tmp_path).detail
    (tmp_path / "cgroup.controllers").write_text("cpu")
    assert host.probe_cgroups(tmp_path).detail == "version 2"


def test_rights() -> None:
    assert host.judge_rights(0).status is Status.OK
    assert host.judge_rights(1000).status is Status.LIMITED


def test_libraries_are_looked_up_without_importing() -> None:
    assert host.installed("pytest") == pytest.__version__
    assert host.installed("no-such-distribution") is None
    assert host.probe_libraries().status is Status.OK


def test_a_missing_extra_names_its_command() -> None:
    finding = host.judge_extra("s3", {"obstore": None})
    assert finding.status is Status.MISSING
    assert finding.mends == host.installing("s3", host.checkout(), sys.executable)


def test_the_command_works_from_elsewhere_and_keeps_a_checkout_in_place(repository: Path) -> None:
    assert host.checkout() == repository
    told = host.installing("s3", Path("/a checkout"), "/a checkout/.venv/bin/python")
    assert shlex.split(told) == [
        "/a checkout/.venv/bin/python", "-m", "pip", "install", "-e", "/a checkout[s3]",
    ]  # fmt: skip
    assert host.installing(None, Path("/h"), "/p") == "/p -m pip install -e /h"
    assert host.installing("s3", None, "/p") == "/p -m pip install 'holdfast[s3]'"


def test_doctor_looks_for_every_declared_library(repository: Path) -> None:
    import tomllib

    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = {
        name: {each.partition(">=")[0] for each in needs if not each.startswith("holdfast[")}
        for name, needs in project["optional-dependencies"].items()
    }
    assert {name: set(libraries) for name, libraries in host.EXTRAS.items()} == extras
    assert set(host.CORE_LIBRARIES) == {each.partition(">=")[0] for each in project["dependencies"]}
