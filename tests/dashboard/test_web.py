"""The page: its source passes its own checks and tests, and what is served was built from it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.server.conftest import Starter

from holdfast.dashboard.site import Site


@pytest.fixture(scope="module")
def web() -> Path:
    return Path(__file__).resolve().parents[2] / "web"


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_it_is_clean_and_its_types_are_those_of_the_server(web: Path) -> None:
    run(web, "npm", "run", "--silent", "check")
    run(web, "node", "scripts/types.mjs", "--check")


def test_its_own_tests_pass(web: Path) -> None:
    report = json.loads(run(web, "npx", "vitest", "run", "--reporter=json", "--silent"))
    assert report["numFailedTests"] == 0
    assert report["numPassedTests"] == report["numTotalTests"] >= 29


def test_the_lock_names_no_host(web: Path) -> None:
    lock = json.loads((web / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]


def test_the_page_is_built_from_this_source_and_nothing_in_it_is_inline(web: Path) -> None:
    run(web.parent, "scripts/build-web", "--tests")
    site = Site.find()
    assert site is not None
    document = site.document.decode()
    assert "<style" not in document
    assert "style=" not in document
    assert document.count("<script") == document.count('<script type="module" src="/assets/') == 1
    for name in site.assets:
        assert f"/assets/{name}" in document
    assert not [text for text in ("http://", "https://") if text in document]


def test_the_wheel_has_it_inside(web: Path, tmp_path: Path) -> None:
    run(web.parent, sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if "dashboard/static/" in name}
    site = Site.find()
    assert site is not None
    names = {*site.assets, "index.html"}
    assert {f"holdfast/dashboard/static/{name}" for name in names} <= inside


def test_without_a_build_the_server_runs_and_says_how_to_get_the_page(
    web: Path, tmp_path: Path
) -> None:
    """A copy of the package as a machine without Node has it."""
    shutil.copytree(
        web.parent / "src/holdfast",
        tmp_path / "copy/holdfast",
        ignore=shutil.ignore_patterns("static", "__pycache__"),
    )
    starter = Starter(
        PYTHONPATH=str(tmp_path / "copy"),
        HOLDFAST_HOME=str(tmp_path),
        XDG_CONFIG_HOME=str(tmp_path),
    )
    try:
        server = starter("--engine", "process")
        with server.client(server.token) as api:
            page = api.get("/", headers={"Accept": "text/html"})
            assert page.status_code == 200
            assert "Nothing is frozen yet" in page.text
            assert "installed without its dashboard" in page.text
            assert "make web" in page.text
            assert api.post("/v1/example").status_code == 200
            page = api.get("/subjects/session/example", headers={"Accept": "text/html"})
            assert "samples read" in page.text
            assert "make web" in api.get("/").text
    finally:
        starter.end()
