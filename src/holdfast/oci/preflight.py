"""What in a container cannot be dumped, and what CRIU must be told so that the rest can.

`look` reads /proc; `judge` is pure. Nothing is refused by it: CRIU decides, and when it fails, what
was found here says why in words.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.oci import network

GHOST = 1024 * 1024  # CRIU keeps deleted files up to this size unless it is told otherwise
_URING = "anon_inode:[io_uring]"
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of the processes of a container."""

    rings: tuple[int, ...] = ()  # processes that use io_uring
    outside: tuple[int, ...] = ()  # processes with a unix socket to somebody outside
    connections: int = 0  # TCP
    deleted: Mapping[str, int] = field(default_factory=dict)  # open files without a name; sizes
    own_network: bool = True  # runc made it, so it goes with the container


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that matters for a dump."""

    name: str
    detail: str
    stops: bool  # the container cannot be dumped as long as it is so


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found, and what to tell CRIU: options of runc, and lines of a CRIU configuration."""

    findings: tuple[Finding, ...] = ()
    options: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    @property
    def clear(self) -> bool:
        return not any(each.stops for each in self.findings)

    def words(self) -> str:
        """Why a dump could not work, in one line; "" when nothing was found."""
        return "; ".join(each.detail for each in self.findings if each.stops)


def judge(sight: Sight) -> Preflight:
    """What follows from what was seen."""
    findings: list[Finding] = []
    options: list[str] = []
    lines: list[str] = []
    if sight.rings:
        text = f"process {_listed(sight.rings)} uses io_uring, which CRIU cannot dump"
        findings.append(Finding("io_uring", text, stops=True))
    if sight.outside:
        text = (
            f"process {_listed(sight.outside)} is connected to a process outside by a unix socket"
        )
        findings.append(Finding("unix socket", text, stops=True))
    if sight.connections and sight.own_network:
        text = f"{sight.connections} TCP connections will be closed when it comes back"
        findings.append(Finding("connections", text, stops=False))
        lines.append("tcp-close")
    elif sight.connections:
        text = f"{sight.connections} TCP connections are kept: its network outlives it"
        findings.append(Finding("connections", text, stops=False))
        options.append("--tcp-established")
    if sight.deleted:
        largest = max(sight.deleted.values())
        text = f"{len(sight.deleted)} open files were deleted; they are kept with the memory"
        findings.append(Finding("deleted files", text, stops=False))
        if largest > GHOST:
            lines.append(f"ghost-limit {largest + GHOST}")
    return Preflight(tuple(findings), tuple(options), tuple(lines))


def look(pids: Iterable[int], *, own_network: bool) -> Sight:
    """What the processes of a container have open. One that ends meanwhile is left out."""
    rings: list[int] = []
    sockets: dict[int, int] = {}  # inode, and a process that has it
    deleted: dict[str, int] = {}
    alive = []
    for pid in sorted(pids):
        try:
            for place in Path(f"/proc/{pid}/fd").iterdir():
                target = os.readlink(place)
                if target == _URING:
                    rings.append(pid)
                elif target.startswith("socket:["):
                    sockets[int(target[8:-1])] = pid
                elif target.endswith(_DELETED) and target.startswith("/") and place.is_file():
                    deleted[target] = place.stat().st_size
        except (FileNotFoundError, ProcessLookupError):
            continue
        alive.append(pid)
    outside: set[int] = set()
    connections = 0
    if alive and sockets:
        connections = len(network.established(alive[0]) & sockets.keys())
        peers = network.unix_peers(alive[0])
        outside = {
            pid for inode, pid in sockets.items() if inode in peers and peers[inode] not in sockets
        }
    return Sight(
        tuple(dict.fromkeys(rings)), tuple(sorted(outside)), connections, deleted, own_network
    )


def _listed(pids: Sequence[int]) -> str:
    return ", ".join(map(str, pids))
