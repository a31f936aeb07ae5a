"""Whether a container that is being created is the one that was frozen. Pure."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from holdfast.model.errors import Conflict, Unsupported
from holdfast.oci.config_handler import Config

Likeness = dict[str, Any]  # plain JSON


def likeness(config: Config) -> Likeness:
    """What must be the same for a restore to make sense."""
    process = config.get("process") or {}
    user = process.get("user") or {}
    return {
        "args": list(process.get("args") or ()),
        "cwd": process.get("cwd", "/"),
        "user": {"uid": user.get("uid", 0), "gid": user.get("gid", 0)},
        "terminal": bool(process.get("terminal", False)),
        "readonly": bool((config.get("root") or {}).get("readonly", False)),
        "mounts": sorted(str(each.get("destination")) for each in config.get("mounts") or ()),
    }


def check_likeness(environment: Mapping[str, Any], config: Config) -> None:
    """Raise Unsupported or Conflict when a checkpoint cannot become this container."""
    machine = platform.machine()
    if environment.get("machine") != machine:
        raise Unsupported(f"it was taken on {environment.get('machine')}, and this is {machine}")
    before, now = environment.get("container"), likeness(config)
    if not isinstance(before, Mapping):
        raise Conflict("it does not say which container it was taken of")
    different = [name for name, value in now.items() if before.get(name) != value]
    if different:
        raise Conflict(
            f"the container is now created with other {', '.join(different)}",
            hint="a changed container starts anew; give it another holdfast.name to keep both",
        )
