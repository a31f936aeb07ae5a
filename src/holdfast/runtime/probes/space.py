"""Room and durability where Holdfast keeps its things."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from holdfast.model.disk import Disk
from holdfast.runtime.finding import ALL_LEVELS, Finding, Status

LITTLE = 2 * 1024**3
TOO_LITTLE = 64 * 1024**2


def existing(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that exists: looking makes nothing."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def probe_space(home: Path) -> Finding:
    try:
        usage = shutil.disk_usage(existing(home))
    except OSError as error:
        detail = f"{home}: {error.strerror}"
        mends = "HOLDFAST_HOME=/a/folder/of/yours holdfast doctor"
        return Finding("space", Status.BROKEN, detail, mends=mends, enables=ALL_LEVELS)
    return judge_space(home, usage.free)


def judge_space(home: Path, free: int) -> Finding:
    """Whether there is room for checkpoints."""
    detail = f"{free / 1024**3:.1f} GiB free for {home}"
    mends = "holdfast prune --keep-last 10"
    if free < TOO_LITTLE:
        return Finding("space", Status.BROKEN, detail, mends=mends, enables=ALL_LEVELS)
    if free < LITTLE:
        return Finding("space", Status.LIMITED, detail, mends=mends, enables=ALL_LEVELS)
    return Finding("space", Status.OK, detail, enables=ALL_LEVELS)


def probe_durability(home: Path) -> Finding:
    """Do what a commit does: write, sync, rename, sync the directory; and time it."""
    place = existing(home)
    try:
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix=".holdfast-probe-", dir=place) as name:
            folder, disk = Path(name), Disk()
            disk.write(folder / "new", b"holdfast" * 512, "probe")
            os.rename(folder / "new", folder / "settled")
            disk.sync_directory(folder, "probe")
            # The backend creates names with link(2), which some file systems lack.
            os.link(folder / "settled", folder / "linked")
            elapsed = time.perf_counter() - started
    except OSError as error:
        return Finding(
            "durability",
            Status.BROKEN,
            f"{place}: {error.strerror}",
            mends="HOLDFAST_HOME=/a/folder/of/yours holdfast doctor",
            enables=ALL_LEVELS,
        )
    detail = f"write, sync and rename in {place} took {elapsed * 1000:.1f} ms"
    return Finding("durability", Status.OK, detail, enables=ALL_LEVELS)
