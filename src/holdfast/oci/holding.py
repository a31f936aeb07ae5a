"""`python -m holdfast.oci.holding SUBJECT`: a container stands still for a bundle, and no longer.

A process of its own: what is done to a container half way is undone by ending whoever does it, and
that must never be the program that makes the bundle. One line of JSON comes in and goes out for
each step; the end of the input means to let the container go on.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from holdfast.model.errors import CaptureFailed, HoldfastError, Unsupported
from holdfast.oci.container import Container
from holdfast.oci.overview import Overview
from holdfast.oci.store_vault import StoreVault
from holdfast.oci.vault import Saved


def main(subject: str) -> int:
    """Freeze a container, keep it when that is asked, and wait."""
    try:
        Overview(os.environ).checkpoint(subject, reason="bundle", leave_running=True, hold=_hold)
    except HoldfastError as error:
        _say({"error": {"kind": error.kind, "message": str(error), "hint": error.hint}})
        return 1
    _say({"resumed": True})
    return 0


def _hold(container: Container, staged: Path) -> Saved:
    vault = container.vault
    if not isinstance(vault, StoreVault):
        raise Unsupported(
            f"the checkpoints of {container.subject} are files, which no bundle can bind",
            hint='mode = "store" in the policy keeps them in a store',
        )
    _say({"frozen": True})
    asked = _heard()
    if asked is None:
        raise CaptureFailed("nobody asked for a checkpoint")
    saved = vault.save(
        container.subject, staged, str(asked["reason"]), stage=asked.get("stage"), aside=True
    )
    record = container.state.record
    _say({"checkpoint": saved.id, "token": record.token if record is not None else None})
    _heard()
    return saved


def _say(told: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def _heard() -> dict[str, str] | None:
    line = sys.stdin.readline()
    found: dict[str, str] | None = json.loads(line) if line.strip() else None
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
