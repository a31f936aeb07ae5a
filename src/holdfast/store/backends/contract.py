"""The backend contract: where a store's log and volumes live.

One conformance suite (`holdfast.testing.backends`) runs against every implementation.
A backend knows nothing of checkpoints: it keeps entries in order, keeps volumes, and
keeps collectors away from what is in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.model.errors import HoldfastError
from holdfast.store.backends.traffic import Traffic
from holdfast.store.log.frames import Damage, Frame, Signed


class Behind(Exception):
    """The log has grown: read what is new, decide again, retry. Never leaves the store."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What the log holds after a given entry. `reset` says: forget what you knew, start here."""

    frames: list[Frame]
    reset: bool = False
    base: int = 0  # up to here a snapshot speaks, which leaves out what no longer matters
    # Commits that were left out, but whose chunks are still there: others may refer to them.
    remains: list[Frame] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing new."""
        return not (self.frames or self.reset or self.remains)


@dataclass(frozen=True, slots=True)
class VolumeInfo:
    """One file that holds chunks."""

    name: bytes
    size: int
    is_pack: bool


class Hold(Protocol):
    """A mark that an operation is in progress; what it may refer to is not deleted."""

    @property
    def nonce(self) -> bytes:
        """8 random bytes; packs written under this hold begin with it."""
        ...

    @property
    def refusal(self) -> HoldfastError | None:
        """Why nothing could be taken, where it could not. One may still read: reading notices
        when something was deleted, and says so."""
        ...

    def release(self) -> None:
        """End it; may be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class Pulse:
    """An owner's sign of life as somebody else finds it."""

    nonce: bytes  # another one after each renewal
    vouched: bool  # whether the owner is known to exist; else only a new nonce proves it


class Beat(Protocol):
    """An owner's sign of life."""

    def renew(self) -> None:
        """Give another one."""
        ...

    def stop(self) -> None:
        """Give none any more; may be called twice."""
        ...


def hold_for_writing(backend: Backend, seq: int) -> Hold:
    """A hold that really holds: without it a collector could take away what a writer refers to."""
    hold = backend.hold(seq)
    if hold.refusal is not None:
        raise hold.refusal
    return hold


Buffer = bytes | bytearray | memoryview


class PackFile(Protocol):
    """A pack being written. Several threads may write to it at once."""

    def write_at(self, offset: int, data: Buffer) -> None: ...

    def lay(self, offset: int, pieces: Sequence[Buffer]) -> None:
        """Write pieces one after the other. Nobody will read them soon: they may go past the
        system's file cache."""
        ...

    def publish(self) -> None:
        """Make it durable under its name."""
        ...

    def discard(self) -> None:
        """Forget it; may be called after publish, and then does nothing."""
        ...


class Volumes(Protocol):
    """Bytes of packs and log segments."""

    def read(self, volume: bytes, offset: int, size: int) -> bytes:
        """Exactly these bytes; NotFound when the volume is gone, Corrupt when it is too short."""
        ...


class Backend(Volumes, Protocol):
    """Where a store lives."""

    @property
    def url(self) -> str: ...

    @property
    def store_id(self) -> str:
        """Random, made with the store, the same for everybody who opens it."""
        ...

    @property
    def traffic(self) -> Traffic | None:
        """What goes over the network; None where nothing does."""
        ...

    @property
    def pack_limit(self) -> int:
        """How large a pack should become at most."""
        ...

    @property
    def transfers(self) -> int:
        """How many packs should be published at the same time."""
        ...

    def entries(self, after: int) -> Tail:
        """The entries behind number `after`, in order."""
        ...

    def audit(self) -> list[Damage]:
        """Everything in the log's files that is no good frame, looked at while nobody appends."""
        ...

    def append(self, signed: Signed) -> Frame:
        """Durably add an entry; raises Behind unless the log ends with the number before it."""
        ...

    def seal(self) -> list[bytes]:
        """Let the next entry go to a new volume; returns the log's volumes that get no more
        entries from anybody. Raises Behind when the log has grown."""
        ...

    def settle(self) -> None:
        """Make durable what was read from the log, too: its writer may have died before its sync.
        Nothing may be deleted because of an entry that a power loss could take back."""
        ...

    def compact(self, upto: Signed, frames: Iterable[Frame]) -> int:
        """Publish a snapshot of the log up to `upto.seq`; returns its size."""
        ...

    def trim(self, before: int, needed: Set[bytes]) -> int:
        """Delete log files that the newest snapshot made superfluous, except the volumes in
        `needed`, if nobody's hold is older than entry `before`; returns the bytes freed."""
        ...

    def volumes(self) -> list[VolumeInfo]:
        """All packs and log segments that are there now."""
        ...

    def create_pack(self, name: bytes) -> PackFile: ...

    def originals(self) -> Volumes:
        """The volumes themselves, not copies of them that are nearer: for verifying."""
        ...

    def pack_size(self, volume: bytes) -> int | None:
        """The size of a pack; None when there is no pack of that name."""
        ...

    def distrust(self, volume: bytes, offset: int) -> bool:
        """What was read there does not check. True: it may have been a copy, which is forgotten, so
        that the next read gives the original, or a new copy of it."""
        ...

    def path(self, volume: bytes) -> Path | None:
        """The volume as a file that can be mapped, where there is one."""
        ...

    def delete(self, volume: bytes) -> int:
        """Delete a pack and return the bytes freed; one that is gone already frees none."""
        ...

    def hold(self, seq: int) -> Hold: ...

    def oldest_hold(self) -> int | None:
        """The lowest number among the holds of the living; sweeps up after the dead."""
        ...

    def active_nonces(self) -> set[bytes]:
        """How the nonces of the holds of the living begin, and of no others."""
        ...

    def beat(self, name: bytes) -> Beat:
        """Begin to give a sign of life under a name of 16 bytes; raises Unsupported where others
        might not see it in time."""
        ...

    def end_beat(self, name: bytes) -> None:
        """Remove what is left of the sign of life of an owner that is gone."""
        ...

    def pulse(self, name: bytes) -> Pulse | None:
        """The sign of life under that name; None when nobody gives it."""
        ...

    def slots(self) -> dict[str, bytes]:
        """The key slots of an encrypted store, by name; none where it is not encrypted."""
        ...

    def put_slot(self, name: str, data: bytes) -> None:
        """Durably add a key slot under a name of 16 hex digits; raises Conflict when there is one
        of that name, also when another process has just made it."""
        ...

    def remove_slot(self, name: str) -> None:
        """Durably take a key slot away; one that is gone already is no error."""
        ...

    def free_bytes(self) -> int | None:
        """Space left, where that can be known."""
        ...

    def reopened(self) -> Backend:
        """The same place, for a forked child: without the parent's locks and descriptors."""
        ...

    def close(self) -> None: ...
