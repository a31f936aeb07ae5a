"""Control groups: memory, CPU and processes of one sandbox, on version 1 or 2 of the kernel's.

A command is put into its groups by a shell that moves itself and then becomes the command, so that
nothing of a sandbox ever runs outside of them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import HoldfastError
from holdfast.sandbox.contract import Limits

log = logging.getLogger("holdfast.sandbox")
_MOUNT = Path("/sys/fs/cgroup")
FAMILY = "holdfast"
_PERIOD = 100_000  # microseconds, of the CPU quota
_noticed: set[tuple[str, ...]] = set()
_TRIES, _TRY_SECONDS = 50, 0.05  # until something that was killed has ended


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of one sandbox; none where this machine does not let us make any."""

    folders: tuple[Path, ...] = ()
    missing: tuple[str, ...] = ()  # limits that nothing enforces here

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """The command, begun inside the groups."""
        if not self.folders:
            return list(argv)
        moves = "; ".join(f'echo 0 > "{_entrance(folder)}"' for folder in self.folders)
        return ["/bin/sh", "-ec", f'{moves}; exec "$@"', "sh", *argv]

    def kill(self) -> None:
        """Kill whatever is inside; what stands still dies when it is let go."""
        for folder in self.folders[:1]:
            for pid in _members(folder):
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    continue
        for folder in self.folders:
            for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
                if (control := folder / name).exists():
                    control.write_text(word)

    def stop(self, seconds: float) -> None:
        """Let everything inside stand still until `go`. Raises HoldfastError when it does not in
        time; then it goes on."""
        control, frozen, shows = self._freezer()
        control.write_text("FROZEN" if shows == control else "1")
        deadline = time.monotonic() + seconds
        while frozen not in shows.read_text():
            if time.monotonic() > deadline:
                self.go()
                raise HoldfastError(f"it did not stand still within {seconds:g} s")
            time.sleep(0.001)

    def go(self) -> None:
        """Go on after `stop`."""
        control, _, shows = self._freezer()
        control.write_text("THAWED" if shows == control else "0")

    def _freezer(self) -> tuple[Path, str, Path]:
        """What to write to, and what then stands where. Version 1 first: where both are there,
        it is the one that CRIU knows how to look behind."""
        for folder in self.folders:
            if (state := folder / "freezer.state").exists():
                return state, "FROZEN", state
        for folder in self.folders:
            if (control := folder / "cgroup.freeze").exists():
                return control, "frozen 1", folder / "cgroup.events"
        raise HoldfastError("there is no control group that could make it stand still")

    def remove(self) -> None:
        """Remove the groups; the kernel refuses while something in them is still ending. What
        stays is told of."""
        for folder in self.folders:
            for _ in range(_TRIES):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(_TRY_SECONDS)
                else:
                    break
            else:
                log.warning("the control group %s stays: something in it has not ended", folder)


def make(name: str, limits: Limits, *, processes: int, mount: Path = _MOUNT) -> Groups:
    """Groups for a sandbox. `processes` is the limit as the host counts them."""
    quota = str(int(limits.cpus * _PERIOD))
    if (mount / "cgroup.controllers").exists():
        wanted = {
            "memory": {"memory.max": str(limits.memory_bytes)},
            "cpu": {"cpu.max": f"{quota} {_PERIOD}"},
            "pids": {"pids.max": str(processes)},
        }
        return _told(_make_one(mount, name, wanted))
    per_controller = {
        "memory": {"memory.limit_in_bytes": str(limits.memory_bytes)},
        "cpu": {"cpu.cfs_period_us": str(_PERIOD), "cpu.cfs_quota_us": quota},
        "pids": {"pids.max": str(processes)},
    }
    folders: list[Path] = []
    missing: list[str] = []
    for controller, values in per_controller.items():
        folder = mount / controller / FAMILY / name
        try:
            folder.mkdir(parents=True)
            _write(folder, values)
            folders.append(folder)
        except OSError:
            missing.append(controller)
            with suppress(OSError):
                folder.rmdir()
    return _told(Groups(tuple(folders), tuple(missing)))


def _told(groups: Groups) -> Groups:
    """Say which limits nothing enforces here, once for each kind of trouble."""
    if groups.missing and groups.missing not in _noticed:
        _noticed.add(groups.missing)
        log.warning(
            "nothing limits the %s of a sandbox here: this machine has no control groups for it",
            ", ".join(groups.missing),
        )
    return groups


def change(groups: Groups, limits: Limits, *, processes: int) -> None:
    """Other limits for groups that are there. Raises OSError."""
    quota = str(int(limits.cpus * _PERIOD))
    wanted = {
        "memory.limit_in_bytes": str(limits.memory_bytes),
        "memory.max": str(limits.memory_bytes),
        "cpu.cfs_quota_us": quota,
        "cpu.max": f"{quota} {_PERIOD}",
        "pids.max": str(processes),
    }
    for folder in groups.folders:
        there = {name: value for name, value in wanted.items() if (folder / name).exists()}
        _write(folder, there)


def left_by(name: str, mount: Path = _MOUNT) -> Groups:
    """The groups of that name that are there, whoever made them."""
    places = [mount / FAMILY / name, *mount.glob(f"*/{FAMILY}/{name}")]
    return Groups(tuple(place for place in places if place.is_dir()))


def _make_one(mount: Path, name: str, wanted: dict[str, dict[str, str]]) -> Groups:
    family = mount / FAMILY
    folder = family / name
    missing: list[str] = []
    try:
        for above in (mount, family):
            above.mkdir(exist_ok=True)
            for controller in wanted:
                _enable(above, controller)
        folder.mkdir()
    except OSError:
        return Groups((), tuple(wanted))
    for controller, values in wanted.items():
        try:
            _write(folder, values)
        except OSError:
            missing.append(controller)
    return Groups((folder,), tuple(missing))


def _enable(folder: Path, controller: str) -> None:
    control = folder / "cgroup.subtree_control"
    if controller not in control.read_text().split():
        control.write_text(f"+{controller}")


def _write(folder: Path, values: dict[str, str]) -> None:
    for name, value in values.items():
        (folder / name).write_text(value)


def _entrance(folder: Path) -> Path:
    """Where somebody with one thread writes 0 to move in. A whole process goes in only after the
    kernel has waited for all of its processors, 10 ms and more; version 1 also takes a thread by
    itself, at once."""
    thread = folder / "tasks"
    return thread if thread.exists() else folder / "cgroup.procs"


def _members(folder: Path) -> list[int]:
    try:
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    except FileNotFoundError:
        return []
