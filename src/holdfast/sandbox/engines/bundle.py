"""The OCI configuration of a sandbox: an agent that may change users, and little else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from holdfast.sandbox.contract import Build

_CAPABILITIES = ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL", "CAP_CHOWN"]
NAMESPACES = ("pid", "mount", "ipc", "uts", "network")

NOTHING: Mapping[str, str] = MappingProxyType({})

Config = dict[str, object]


def config(
    build: Build,
    *mounts: Config,
    environ: Mapping[str, str] = NOTHING,
    capabilities: Sequence[str] = (),
    **linux: object,
) -> Config:
    """What every engine that reads OCI bundles is told; all but the build is its own. Environment
    and capabilities are the agent's: no program has them."""
    binds = [
        {
            "destination": mount.target,
            "type": "bind",
            "source": mount.source,
            "options": ["rbind", "ro", "nosuid", "nodev"],
        }
        for mount in build.root.mounts
    ]
    told = {"PATH": "/usr/bin:/bin", "SHARED_MEMORY": "/dev/shm", **build.root.environ, **environ}
    sets = ("bounding", "effective", "permitted")
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(build.root.agent),
            "env": [f"{name}={value}" for name, value in told.items()],
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": {each: [*_CAPABILITIES, *capabilities] for each in sets},
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 4096}],
        },
        "root": {"path": str(build.volume.merged), "readonly": False},
        "hostname": "sandbox",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            *mounts,
            *binds,
        ],
        "linux": {"namespaces": [{"type": kind} for kind in NAMESPACES], **linux},
    }


def cpu_flags() -> list[str]:
    """What the processor can do: a program that saw a feature expects it after a restore."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return sorted(value.split())
    return []
