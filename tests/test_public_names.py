"""The public names: what `import holdfast` promises, exactly."""

from __future__ import annotations

import subprocess
import sys

import holdfast

NAMES = {
    "AsyncStateManager",
    "BadInput",
    "Busy",
    "Bundle",
    "CaptureFailed",
    "Checkpoint",
    "Conflict",
    "Corrupt",
    "Denied",
    "HeadMove",
    "HoldfastError",
    "Item",
    "Lease",
    "LeaseLost",
    "Manifest",
    "NotFound",
    "Owned",
    "Owner",
    "Part",
    "Partial",
    "Problem",
    "Report",
    "Sandbox",
    "Session",
    "SessionPool",
    "StateManager",
    "StorageFull",
    "Store",
    "Subject",
    "Unsupported",
    "UsageError",
    "Verification",
    "__version__",
    "open_store",
}


def test_the_names_are_these() -> None:
    assert set(holdfast.__all__) == NAMES
    assert dir(holdfast) == sorted(NAMES)


def test_every_name_is_there() -> None:
    for name in NAMES:
        assert getattr(holdfast, name) is not None
    assert not hasattr(holdfast, "no_such_name")


def test_importing_the_package_imports_none_of_its_parts() -> None:
    code = "import sys, holdfast; print(*(name for name in sys.modules if 'holdfast' in name))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert [name for name in done.stdout.split() if name.startswith("holdfast")] == ["holdfast"]
