"""What is done to the key slots of an encrypted store while it is being hurt."""

from __future__ import annotations

from pathlib import Path

from holdfast.model.disk import Disk
from holdfast.model.errors import Denied, HoldfastError
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


# -- one secret after the other, with promises that outlast a power cut

_PLACE = "place/of/secrets"
SECRETS = 3


def let_in(base: str, number: int, disk: Disk) -> str:
    """Let a secret open the store, too; the first one makes it. The promise of that."""
    backend = LocalBackend(Path(base, _PLACE), create=number == 0, disk=disk)
    if not backend.slots():
        slots.begin(backend, _secret(number))
    elif not _opening(backend, number):  # whoever was told of an error tries again
        slots.add(backend, slots.unlock(backend, [_secret(number - 1)])[0], _secret(number))
    return _opens(base, number)


def shut_out(base: str, number: int, disk: Disk) -> tuple[str, str]:
    """Let a secret open the store no more, now that the next one does. The promises of that."""
    backend = LocalBackend(Path(base, _PLACE), create=False, disk=disk)
    slots.unlock(backend, [_secret(number + 1)])
    if slot := _opening(backend, number):
        slots.remove(backend, slot)
    return _opens(base, number + 1), f"{base}/=secret shut {number}"


def _opens(base: str, number: int) -> str:
    """That a secret opens the store, or one that came after it."""
    return f"{base}/=secret opens {number}"


def is_kept(base: str, promise: str, number: str) -> bool:
    """Whether it is so still."""
    backend = LocalBackend(Path(base, _PLACE), create=False)
    if promise == "shut":
        return not _opening(backend, int(number))
    return any(_opening(backend, later) for later in range(int(number), SECRETS))


def _opening(backend: LocalBackend, number: int) -> str:
    """The slot that a secret opens; empty when it opens none."""
    try:
        return slots.unlock(backend, [_secret(number)])[1]
    except Denied:
        return ""


def _secret(number: int) -> Secret:
    return Secret("file", bytes([number]) * 32)
