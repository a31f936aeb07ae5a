"""What we add to a container's configuration when it is created: a working directory in a file
system that other nodes see, and where CRIU finds its options."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from holdfast.oci.config_handler import Config
from holdfast.oci.private import private_folder

_CRIU = "org.criu.config"


def with_workdir(config: Config, destination: str, source: str) -> dict[str, Any]:
    """A configuration with a folder bound at `destination`, as the process's working directory.
    Pure; giving it twice changes nothing."""
    mounts = [each for each in config.get("mounts") or () if each.get("destination") != destination]
    bind = {
        "destination": destination,
        "type": "bind",
        "source": source,
        "options": ["rbind", "rw"],
    }
    process = {**(config.get("process") or {}), "cwd": destination}
    return {**config, "mounts": [*mounts, bind], "process": process}


def with_criu(config: Config, path: str) -> dict[str, Any]:
    """A configuration that tells runc where CRIU's is; one that it names already stays. Pure."""
    return {**config, "annotations": {_CRIU: path, **(config.get("annotations") or {})}}


def add_criu(bundle: str, config: Config, path: Path) -> Config:
    """The same, written in place of the old one."""
    changed = with_criu(config, str(path))
    if changed != config:
        _replace(bundle, changed)
    return changed


def add_workdir(bundle: str, config: Config, destination: str, folder: Path) -> Config:
    """Make the folder, and write the changed configuration in place of the old one."""
    user = (config.get("process") or {}).get("user") or {}
    if not folder.exists():
        private_folder(folder)
        os.chown(folder, int(user.get("uid", 0)), int(user.get("gid", 0)))
    changed = with_workdir(config, destination, str(folder))
    _replace(bundle, changed)
    return changed


def _replace(bundle: str, changed: Config) -> None:
    path = Path(bundle, "config.json")
    draft = path.with_name(f".config.json.{os.getpid()}")
    draft.write_text(json.dumps(changed))
    draft.chmod(path.stat().st_mode & 0o7777)
    draft.rename(path)
