"""Whether a container that is being created is the one that was frozen. Pure."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.model.errors import Conflict, Unsupported
from holdfast.oci.config_handler import Config

_INSTRUCTIONS = re.compile(
    r"(sse|ssse|avx|amx|fma|bmi|aes|vaes|sha|gfni|vpclmul|pclmul|xsave|f16c|popcnt|movbe|adx|rdrand"
    r"|rdseed|asimd|sve|crc32|atomics)\w*"
)
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


def cpu_features(table: str | None = None) -> list[str]:
    """What this processor can do that a program may have found out when it started; sorted."""
    text = Path("/proc/cpuinfo").read_text() if table is None else table
    line = next((each for each in text.splitlines() if each.startswith(("flags", "Features"))), "")
    return sorted(set(filter(_INSTRUCTIONS.fullmatch, line.partition(":")[2].split())))


def check_likeness(environment: Mapping[str, Any], config: Config) -> None:
    """Raise Unsupported or Conflict when a checkpoint cannot become this container."""
    machine = platform.machine()
    if environment.get("machine") != machine:
        raise Unsupported(f"it was taken on {environment.get('machine')}, and this is {machine}")
    if lacking := sorted(set(environment.get("cpu") or ()) - set(cpu_features())):
        raise Unsupported(
            f"it was taken on a processor with {', '.join(lacking)}, which this lacks"
        )
    before, now = environment.get("container"), likeness(config)
    if not isinstance(before, Mapping):
        raise Conflict("it does not say which container it was taken of")
    different = [name for name, value in now.items() if before.get(name) != value]
    if different:
        raise Conflict(
            f"the container is now created with other {', '.join(different)}",
            hint="a changed container starts anew; give it another holdfast.name to keep both",
        )
