"""The wheel as users get it: what is in it, and that it works in an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SMOKE = """
import asyncio, math
from holdfast import Session, StateManager, open_store

async def main():
    store = open_store()
    state = StateManager("smoke", store=store)
    state.set_state("n", 1)
    state.checkpoint("first")
    async with Session(name="smoke", store=store) as session:
        await session.execute("import math\\nx = [math.pi]\\ndef area(r): return x[0] * r * r")
        checkpoint = await session.checkpoint()
        await session.execute("x.clear()")
        await session.restore(checkpoint)
        assert (await session.execute("area(2)")).value == 4 * math.pi
    assert store.verify(deep=True).ok

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), at=repository)
    (built,) = folder.glob("*.whl")
    return built


def run(*command: str, at: Path, **environ: str) -> str:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        command,
        cwd=at,
        env={**kept, **environ},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def interpreter(version: str) -> str:
    """A Python of that version, from PATH or pyenv. Fails when there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in (f"python{version}", *map(str, pyenv.glob(f"{version}.*/bin/python"))):
        said = "import sys; print('%d.%d' % sys.version_info[:2])"
        try:
            found = subprocess.run([candidate, "-c", said], capture_output=True, text=True)
        except FileNotFoundError:
            continue
        if found.stdout.strip() == version:
            return candidate
    pytest.fail(f"there is no Python {version} here, so the wheel cannot be tried with it")


def test_the_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith("/METADATA"))).decode()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"holdfast", "holdfast-0.1.0.dist-info", "holdfast-0.1.0.data"}
    wrapper = ("holdfast/oci/holdfast-runc", "holdfast/oci/holdfast-runc.c")
    for wanted in ("holdfast/py.typed", "holdfast-0.1.0.data/scripts/holdfast-runc", *wrapper):
        assert wanted in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert "Requires-Python: <3.14,>=3.11" in metadata


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_it_works_in_an_empty_environment(version: str, wheel: Path, tmp_path: Path) -> None:
    run(interpreter(version), "-m", "venv", str(tmp_path / "venv"), at=tmp_path)
    bin_ = tmp_path / "venv/bin"
    quiet = ("--quiet", "--disable-pip-version-check")
    run(str(bin_ / "pip"), "install", *quiet, str(wheel), at=tmp_path)
    home = {"HOLDFAST_HOME": str(tmp_path / "home"), "HOLDFAST_STORE": str(tmp_path / "store")}
    (tmp_path / "smoke.py").write_text(SMOKE)
    run(str(bin_ / "python"), "smoke.py", at=tmp_path, **home)
    listed = run(str(bin_ / "holdfast"), "list", "--json", at=tmp_path, **home)
    assert '"session/smoke"' in listed
    assert '"state/smoke"' in listed
    run(str(bin_ / "holdfast"), "verify", "--deep", at=tmp_path, **home)
