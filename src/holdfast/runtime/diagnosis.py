"""What this machine can do: all findings together, and what follows from them.

Probing is I/O and slow (seconds); deciding is a pure function over the findings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from holdfast.runtime.finding import Finding, Level, Status
from holdfast.runtime.probes import engines, host, mounts, pages, permissions, space


@dataclass(frozen=True, slots=True)
class Ability:
    """Whether one level can be used here, by which engines, and what would be better."""

    level: Level
    usable: bool
    engines: tuple[str, ...]
    note: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was found, in a fixed order."""

    findings: tuple[Finding, ...]

    @property
    def abilities(self) -> tuple[Ability, ...]:
        return decide(self.findings)

    @property
    def usable(self) -> bool:
        """Whether anything at all can be frozen on this machine."""
        return any(ability.usable for ability in self.abilities)


def probes(home: Path, environ: Mapping[str, str]) -> list[Callable[[], list[Finding]]]:
    """Every probe, in the order in which a person reads the findings."""

    def one(probe: Callable[[], Finding]) -> Callable[[], list[Finding]]:
        return lambda: [probe()]

    return [
        one(host.probe_python),
        one(host.probe_libraries),
        one(lambda: space.probe_space(home)),
        one(lambda: space.probe_durability(home)),
        one(lambda: permissions.probe_permissions(home, environ)),
        one(host.probe_kernel),
        one(pages.probe_dirty_pages),
        one(host.probe_rights),
        one(host.probe_cgroups),
        one(mounts.probe_user_namespaces),
        one(mounts.probe_overlay),
        one(mounts.probe_fuse),
        one(lambda: engines.probe_runc(environ)),
        one(lambda: engines.probe_criu(environ)),
        one(lambda: engines.probe_gvisor(environ)),
        one(lambda: engines.probe_bubblewrap(environ)),
        host.probe_extras,
    ]


def diagnose(home: Path, environ: Mapping[str, str] = os.environ) -> Diagnosis:
    """Run every probe. They wait for other programs most of the time, so side by side."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        running = [pool.submit(probe) for probe in probes(home, environ)]
        groups = [future.result() for future in running]
    return Diagnosis(tuple(finding for group in groups for finding in group))


def decide(findings: Iterable[Finding]) -> tuple[Ability, ...]:
    """What each level can do, given what was found."""
    by_name = {finding.name: finding for finding in findings}

    def works(name: str) -> bool:
        return name in by_name and by_name[name].works

    def fully(name: str) -> bool:
        return name in by_name and by_name[name].status is Status.OK

    base = ("python", "libraries", "space", "durability")
    failing = [name for name in base if not works(name)]
    if failing:
        note = f"first mend: {', '.join(failing)}"
        return tuple(Ability(level, False, (), note) for level in Level)

    tracking = (
        "increments by the kernel's dirty pages"
        if fully("dirty pages")
        else "increments by comparing and hashing"
    )
    root = fully("root")
    criu = works("runc") and works("criu") and root
    sandbox = tuple(
        name
        for name, there in (
            ("gvisor", fully("runsc") and root),
            ("runc", criu and works("overlayfs")),
            ("process", True),
        )
        if there
    )
    if sandbox[0] == "process":
        kept = "processes are not frozen: files and the Python session are kept"
    else:
        kept = f"whole processes are frozen; best engine: {sandbox[0]}"
    lacking = [name for name in ("root", "runc", "criu", "overlayfs") if not fully(name)]
    container = criu and works("overlayfs")
    return (
        Ability(Level.STATE, True, (), "readable files, or the store"),
        Ability(Level.SESSION, True, (), tracking),
        Ability(Level.SANDBOX, True, sandbox, kept),
        Ability(
            Level.CONTAINER,
            container,
            ("runc",) if container else (),
            "containers under containerd, Docker or Podman"
            if container
            else f"needs: {', '.join(lacking)}",
        ),
    )
