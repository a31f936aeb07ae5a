from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from holdfast.runtime.trial import bundle_config, clear, mounts_below, trial, write_bundle


def test_the_root_mirrors_the_hosts_links(tmp_path: Path) -> None:
    write_bundle(tmp_path, ("/usr/bin/true",))
    config = json.loads((tmp_path / "config.json").read_text())
    mounted = {mount["destination"] for mount in config["mounts"]}
    assert "/usr" in mounted
    for name in ("bin", "lib"):
        ours = tmp_path / "rootfs" / name
        assert ours.is_symlink() == Path("/", name).is_symlink()
        assert (f"/{name}" in mounted) == (not ours.is_symlink())


def test_what_is_bound_cannot_be_written() -> None:
    config = bundle_config(("true",), ("usr", "opt"))
    mounts = config["mounts"]
    assert isinstance(mounts, list)
    assert all("ro" in mount["options"] for mount in mounts if mount["type"] == "bind")


def test_nothing_is_left_of_a_trial_that_failed() -> None:
    folders: list[Path] = []

    def fail() -> None:
        with trial(("/usr/bin/false",), ("true",), os.environ) as it:
            folders.append(it.folder)
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert not folders[0].exists()


def test_clearing_detaches_what_is_still_mounted(tmp_path: Path) -> None:
    """A killed criu leaves mounts behind; deleting must not reach through them."""
    folder = tmp_path / "work"
    (folder / "yard").mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", folder / "yard"], check=True)  # needs root
    assert mounts_below(folder) == [str(folder / "yard")]
    clear(folder)
    assert mounts_below(folder) == []
    assert not folder.exists()


@pytest.mark.parametrize("name", ["with a space", "tab\there", "back\\slash", "\u00fcber"])
def test_a_mount_is_found_by_any_name(name: str, tmp_path: Path) -> None:
    point = tmp_path / name
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(point)], check=True)
    assert mounts_below(tmp_path) == [str(point)]
    clear(tmp_path)
    assert not tmp_path.exists()
