"""What is done to the key slots of an encrypted store while it is being hurt."""

from __future__ import annotations

from pathlib import Path

from holdfast.model.errors import HoldfastError
from holdfast.store import open_store, slots
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.slots import Secret
from holdfast.testing.stage import TakeNote

OLD, NEW = Secret("file", b"o" * 32), Secret("file", b"n" * 32)


def begin(note: TakeNote, base: str) -> None:
    """Make an encrypted store."""
    environ = {"HOLDFAST_HOME": f"{base}/home"}
    try:
        open_store(Path(base, "store"), encrypt=True, secret=OLD, environ=environ).close()
    except HoldfastError as error:
        note({"error": error.kind})
    else:
        note({"made": True})


def rotate(note: TakeNote, base: str) -> None:
    """Let a new secret take the place of the old one."""
    try:
        backend = LocalBackend(Path(base, "store"), create=False)
        data_key, old = slots.unlock(backend, [OLD])
        slots.add(backend, data_key, NEW)
        note({"added": True})
        slots.remove(backend, old)
    except HoldfastError as error:
        note({"error": error.kind})
    else:
        note({"rotated": True})
