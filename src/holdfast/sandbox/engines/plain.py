"""Plain processes: for where neither bubblewrap nor namespaces are allowed.

A program has a home and a `/tmp` of its own below the box's folder, and limits for each process.
Nothing else is between it and the host: it sees the host's files and processes as its user does,
and the network, so that whoever wants no network is refused.
"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.errors import Unsupported
from holdfast.sandbox.contract import Build
from holdfast.sandbox.roots import TOOLS

_END_SECONDS = 10.0


class Plain:
    """Starts an agent as a child of the server, as the server's user."""

    def words(self, build: Build) -> list[str]:
        """Raises Unsupported for what only walls could give."""
        if build.root.name != "default":
            raise Unsupported(
                "without namespaces a sandbox has the host's files, and no image",
                hint="apt-get install bubblewrap, or allow user namespaces",
            )
        if not build.network:
            raise Unsupported(
                "without namespaces nothing can be cut off from the network",
                hint="apt-get install bubblewrap, or ask for a sandbox with network",
            )
        places = self.places(build)
        return [word.replace(TOOLS, places[TOOLS]) for word in build.root.agent]

    def environ(self, build: Build) -> Mapping[str, str]:
        return {"PATH": os.defpath, **build.root.environ}

    def places(self, build: Build) -> Mapping[str, str]:
        # The longest first: one mount may lie below another.
        mounts = sorted(build.root.mounts, key=lambda each: each.target, reverse=True)
        moved = {each.target: each.source for each in mounts}
        upper = build.volume.upper
        return {**moved, **{f"/{name}": str(upper / name) for name in ("root", "tmp")}}

    def own_users(self, build: Build) -> bool:
        return False

    def end(self, pid: int) -> None:
        """Kill an agent's children, whatever they made of themselves; they are its own until it
        ends. Blocking."""
        deadline = time.monotonic() + _END_SECONDS
        while (left := below(pid)) and time.monotonic() < deadline:
            for each in left:
                try:
                    os.kill(each, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.01)


def below(pid: int) -> list[int]:
    """The living descendants of a process."""
    children: dict[int, list[int]] = defaultdict(list)
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = place.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has ended
        if state != "Z":
            children[int(parent)].append(int(place.parent.name))
    found: list[int] = []
    pending = [pid]
    while pending:
        pending += (more := children[pending.pop()])
        found += more
    return found


def tasks_of(user: int) -> int:
    """How many threads a user has on this machine. Blocking, and quick."""
    found = 0
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if place.stat().st_uid == user:
                found += len(os.listdir(place / "task"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
    return found
