"""What the machine itself is: kernel, cgroups, rights, Python, libraries."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import sys
from pathlib import Path

from holdfast.runtime.finding import ALL_LEVELS, Finding, Level, Status
from holdfast.runtime.version import at_least

LEAST_PYTHON = (3, 11)
NEXT_PYTHON = (3, 14)
LEAST_KERNEL = (5, 11)  # overlayfs in a user namespace, pidfds, CAP_CHECKPOINT_RESTORE
SCAN_KERNEL = (6, 7)  # PAGEMAP_SCAN

CORE_LIBRARIES = (
    "blake3",
    "click",
    "cloudpickle",
    "msgspec",
    "numpy",
    "rich",
    "uuid-utils",
    "xxhash",
    "zstandard",
)
EXTRAS = {
    "server": ("anyio", "h11", "starlette", "uvicorn", "websockets"),
    "s3": ("obstore",),
    "encryption": ("cryptography",),
    "jupyter": ("ipython",),
    "langgraph": ("langchain-core", "langgraph", "langgraph-checkpoint"),
    "mcp": ("mcp", "mcp-types"),
    "otel": ("opentelemetry-api",),
    "repl": ("prompt_toolkit", "pygments"),
    "testing": ("hypothesis", "mfusepy", "pytest", "pytest-asyncio"),
}


def probe_python() -> Finding:
    return judge_python(sys.version_info[:2], platform.python_version(), sys.executable)


def judge_python(version: tuple[int, int], text: str, executable: str) -> Finding:
    """Whether this Python is one that Holdfast is made for."""
    detail = f"{text} ({executable})"
    if LEAST_PYTHON <= version < NEXT_PYTHON:
        return Finding("python", Status.OK, detail, enables=ALL_LEVELS)
    return Finding(
        "python",
        Status.BROKEN,
        f"{detail}; Holdfast needs 3.11, 3.12 or 3.13",
        mends="PYTHON=python3.11 make setup",
        enables=ALL_LEVELS,
    )


def probe_kernel() -> Finding:
    return judge_kernel(platform.system(), platform.release())


def judge_kernel(system: str, release: str) -> Finding:
    """What may be expected of a kernel by its version; the other probes try it."""
    levels = (Level.SESSION, Level.SANDBOX, Level.CONTAINER)
    if system != "Linux":
        detail = f"{system} {release}; sandboxes and containers need Linux"
        return Finding("kernel", Status.LIMITED, detail, enables=levels)
    if not at_least(release, LEAST_KERNEL):
        detail = f"Linux {release}; engines are tested with 5.11 and newer"
        return Finding("kernel", Status.LIMITED, detail, enables=levels)
    if not at_least(release, SCAN_KERNEL):
        detail = f"Linux {release}; dirty pages are tracked by the kernel from 6.7 on"
        return Finding("kernel", Status.LIMITED, detail, enables=levels)
    return Finding("kernel", Status.OK, f"Linux {release}", enables=levels)


def probe_cgroups(root: Path = Path("/sys/fs/cgroup")) -> Finding:
    unified = (root / "cgroup.controllers").exists()
    hybrid = (root / "unified").is_dir()
    legacy = any((root / name).is_dir() for name in ("memory", "pids", "freezer"))
    return judge_cgroups(unified=unified, hybrid=hybrid, legacy=legacy)


def judge_cgroups(*, unified: bool, hybrid: bool, legacy: bool) -> Finding:
    """Which generation of control groups is mounted."""
    levels = (Level.SANDBOX, Level.CONTAINER)
    if unified:
        return Finding("cgroups", Status.OK, "version 2", enables=levels)
    if legacy:
        detail = "version 1 with version 2 beside it" if hybrid else "version 1"
        return Finding("cgroups", Status.OK, detail, enables=levels)
    return Finding(
        "cgroups",
        Status.MISSING,
        "none are mounted; runc cannot limit or freeze a container",
        mends="mount -t cgroup2 none /sys/fs/cgroup",
        enables=levels,
    )


def probe_rights() -> Finding:
    return judge_rights(os.geteuid())


def judge_rights(uid: int) -> Finding:
    """Whether we are root, which criu, runc and overlay mounts ask for."""
    levels = (Level.SANDBOX, Level.CONTAINER)
    if uid == 0:
        return Finding("root", Status.OK, "running as root", enables=levels)
    return Finding(
        "root",
        Status.LIMITED,
        f"running as user {uid}: state, sessions and the process engine work;"
        " runc, criu and overlay mounts need root",
        mends="sudo holdfast serve",
        enables=levels,
    )


def installed(name: str) -> str | None:
    """The version of an installed distribution, without importing it."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def probe_libraries() -> Finding:
    return judge_core({name: installed(name) for name in CORE_LIBRARIES})


def judge_core(versions: dict[str, str | None]) -> Finding:
    """Whether the libraries that everything needs are there."""
    absent = [name for name, version in versions.items() if version is None]
    if absent:
        detail = f"not installed: {', '.join(absent)}"
        mends = installing(None, checkout(), sys.executable)
        return Finding("libraries", Status.MISSING, detail, mends=mends, enables=ALL_LEVELS)
    detail = ", ".join(f"{name} {version}" for name, version in versions.items())
    return Finding("libraries", Status.OK, detail, enables=ALL_LEVELS)


def checkout() -> Path | None:
    """The checkout that this program runs from, if it does: installed in place."""
    root = Path(__file__).resolve().parents[4]
    here = root / "src" / "holdfast" / "runtime"
    return root if (root / "pyproject.toml").is_file() and here.is_dir() else None


def installing(extra: str | None, root: Path | None, python: str) -> str:
    """The command that installs Holdfast with an extra, from whatever folder it is typed in.

    A checkout stays installed in place: a copy of it would not follow the next `git pull`.
    """
    more = f"[{extra}]" if extra else ""
    if root is None:
        return f"{shlex.quote(python)} -m pip install {shlex.quote(f'holdfast{more}')}"
    return f"{shlex.quote(python)} -m pip install -e {shlex.quote(f'{root}{more}')}"


def probe_extras() -> list[Finding]:
    """One finding per optional group of libraries."""
    return [
        judge_extra(extra, {name: installed(name) for name in names})
        for extra, names in EXTRAS.items()
    ]


def judge_extra(extra: str, versions: dict[str, str | None]) -> Finding:
    """Whether an optional group is complete."""
    absent = [name for name, version in versions.items() if version is None]
    if absent:
        detail = f"not installed: {', '.join(absent)}"
        mends = installing(extra, checkout(), sys.executable)
        return Finding(f"extra {extra}", Status.MISSING, detail, mends=mends)
    detail = ", ".join(f"{name} {version}" for name, version in versions.items())
    return Finding(f"extra {extra}", Status.OK, detail)
