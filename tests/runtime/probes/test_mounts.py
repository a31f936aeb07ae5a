from __future__ import annotations

import errno
import os
from pathlib import Path

from holdfast.runtime.command import Outcome
from holdfast.runtime.finding import Status
from holdfast.runtime.probes import mounts


def table() -> list[str]:
    """What is mounted, but for what other tests mount at the same time: in folders of theirs, for
    trials of theirs, or as a network."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    ours = f"/holdfast-trial-{os.getpid()}-"
    theirs = ("/pytest-of-", "/holdfast-trial-", "/run/netns")
    return [line for line in lines if ours in line or not any(each in line for each in theirs)]


def test_an_overlay_is_really_mounted_and_nothing_stays() -> None:
    before = table()
    finding = mounts.probe_overlay()
    assert finding.status is Status.OK, finding.detail
    assert table() == before


def test_fuse_is_really_mounted_and_nothing_stays() -> None:
    before = table()
    finding = mounts.probe_fuse()
    assert finding.status is Status.OK, finding.detail
    assert table() == before


def test_a_missing_device() -> None:
    finding = mounts.probe_fuse(Path("/nonexistent/fuse"))
    assert finding.status is Status.MISSING
    assert finding.mends == "modprobe fuse"


def test_a_device_that_is_not_ours_to_open_is_a_limit() -> None:
    finding = mounts.judge_fuse("libfuse3.so.3", "/dev/fuse: no", errno.EACCES)
    assert finding.status is Status.LIMITED


def test_an_overlay_that_the_kernel_does_not_know() -> None:
    outcome = Outcome(("mount",), 32, "", "mount: unknown filesystem type 'overlay'.")
    finding = mounts.judge_overlay(outcome)
    assert finding.status is Status.BROKEN
    assert finding.mends == "modprobe overlay"


def test_user_namespaces_may_be_closed() -> None:
    refused = Outcome(("unshare",), 1, "", "unshare failed: No space left on device")
    finding = mounts.judge_user_namespaces(refused, ["sysctl -w user.max_user_namespaces=15000"])
    assert finding.status is Status.LIMITED
    assert finding.mends == "sysctl -w user.max_user_namespaces=15000"
    assert mounts.judge_user_namespaces(refused, []).mends is None


def test_the_setting_that_closes_them_is_named(tmp_path: Path) -> None:
    assert mounts.closed_switches(tmp_path) == []
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel/unprivileged_userns_clone").write_text("0\n")
    assert mounts.closed_switches(tmp_path) == ["sysctl -w kernel.unprivileged_userns_clone=1"]
