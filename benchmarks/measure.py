"""Measuring whole commands: wall time, processor time, and what they leave on disk."""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.runtime import engines
from holdfast.runtime.probes.engines import version_of

_SETTLING = 1.0  # seconds
_BEGIN, _END = "<!-- figures: written by the benchmark -->\n", "<!-- end of figures -->\n"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took. `added_mb` is what the repository grew by, in MB of 10**6 bytes."""

    wall: float
    cpu: float
    added_mb: float = 0.0


def run(
    command: Sequence[str] | str,
    repository: Path,
    *,
    env: dict[str, str] | None = None,
    reads: Path | None = None,
) -> Cost:
    """Run a command to its end, with everything that was written before synced first, and some
    time for the disk: what was deleted before is discarded there in the background. `reads`: what
    it will read is in memory when it begins, whoever read it last; a machine that gives unused
    memory back would let it wait for the disk, or not, by chance."""
    os.sync()
    time.sleep(_SETTLING)
    if reads is not None:
        _read(reads)
    before = size_of(repository)
    used = _children()
    start = time.perf_counter()
    done = subprocess.run(
        command,
        shell=isinstance(command, str),
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return Cost(wall, _children() - used, (size_of(repository) - before) / 1e6)


def _read(place: Path) -> None:
    buffer = bytearray(1 << 20)
    for path in place.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


def size_of(place: Path) -> int:
    if place.is_file():
        return place.stat().st_size
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def middle(costs: Sequence[Cost]) -> Cost:
    """The median of each figure on its own."""
    return Cost(
        statistics.median(cost.wall for cost in costs),
        statistics.median(cost.cpu for cost in costs),
        statistics.median(cost.added_mb for cost in costs),
    )


def publish(page: Path, figures: str, heading: str = "") -> None:
    """Write the figures of a run to a page; the words around them stay. `heading` begins a page
    that is not there yet."""
    before, after = heading, ""
    if page.exists():
        before, _, rest = page.read_text().partition(_BEGIN)
        _, found, after = rest.partition(_END)
        if not found:
            raise SystemExit(f"{page} has no place for figures: {_BEGIN}{_END}")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"{before}{_BEGIN}\n{figures}\n\n{_END}{after}")


def machine(*used: str) -> str:
    """The machine, with the versions of the engines that were used."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    versions = "".join(f", {name} {_version(name)}" for name in used)
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {system}{versions}"


def _version(name: str) -> str:
    found = engines.find(name)
    version = found and version_of(found, engines.environment())[0]
    if not version:
        raise SystemExit(f"there is no {name} that says its version: make setup, as root")
    return version


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
