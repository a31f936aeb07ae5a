"""The probe of what other users can open: it names it, with the command that closes it."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.runtime.finding import Status
from holdfast.runtime.probes.permissions import probe_permissions
from holdfast.store import open_store


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home in a folder that all may enter, as pytest's are not, with a key and a store."""
    folder = Path("/var/tmp") / f"holdfast-{os.getpid()}-{tmp_path.name}"
    folder.mkdir()
    folder.chmod(0o755)
    home = folder / "home"
    open_store(home / "store", environ={"HOLDFAST_HOME": str(home)}).close()
    yield home
    subprocess.run(["rm", "-rf", folder], check=True)


def test_what_is_made_is_closed(home: Path) -> None:
    assert probe_permissions(home, {"HOLDFAST_HOME": str(home)}).status is Status.OK


def test_what_is_open_can_be_closed(home: Path) -> None:
    subprocess.run(["chmod", "-R", "a+rX", home], check=True)
    found = probe_permissions(home, {"HOLDFAST_HOME": str(home)})
    assert found.status is Status.LIMITED
    for path in (home / "key", home / "store"):
        assert f"every user of this machine can open {path} (mode " in found.detail
    assert found.mends is not None
    subprocess.run(found.mends, shell=True, check=True)
    assert probe_permissions(home, {"HOLDFAST_HOME": str(home)}).status is Status.OK
    assert stat.S_IMODE((home / "key").stat().st_mode) == 0o600


def test_another_key_file_is_looked_at(home: Path, tmp_path: Path) -> None:
    key = home.parent / "elsewhere"
    key.write_text("ab" * 32)
    key.chmod(0o640)
    environ = {"HOLDFAST_HOME": str(home), "HOLDFAST_KEY_FILE": str(key)}
    found = probe_permissions(home, environ)
    assert found.mends == f"chmod go-rwx {key}"


def test_shared_stores_are_open_to_their_group(home: Path) -> None:
    place = home.parent / "team"
    open_store(place, shared=True).close()
    environ = {"HOLDFAST_HOME": str(home), "HOLDFAST_STORE": str(place)}
    assert probe_permissions(home, environ).status is Status.OK
    subprocess.run(["chmod", "-R", "o+rX", place], check=True)
    assert probe_permissions(home, environ).mends == f"chmod -R o-rwx {place}"
