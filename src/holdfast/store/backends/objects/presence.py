"""Presence: that a process is at work in a bucket, told once for all its operations.

An object for each operation would cost two requests each. So a process says what its oldest
operation is, says so again every now and then, and takes it back when it has been idle.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from contextlib import suppress

from holdfast.model.errors import HoldfastError
from holdfast.store.backends.objects.bucket import Bucket

RENEWAL = 20.0  # seconds between two signs, and of idleness until the last is taken back
LIFETIME = 300.0  # seconds, by the store's clock, after which a silent process counts as dead
_ID = 5  # bytes that the nonces of one process share
_NOBODY = (1 << 63) - 1  # the seq of somebody who only wants to know what time it is
_KEY = re.compile(r"holds/([0-9a-f]{10})-([0-9a-f]{16})")


class ObjectHold:
    """One operation in progress."""

    refusal: HoldfastError | None = None

    def __init__(self, presence: Presence, nonce: bytes, seq: int) -> None:
        self._presence = presence
        self.nonce = nonce
        self.seq = seq

    def release(self) -> None:
        self._presence.release(self)


class Presence:
    """What this process does in a bucket, and who else does something. Thread-safe."""

    def __init__(self, bucket: Bucket, linger: float = RENEWAL, lifetime: float = LIFETIME) -> None:
        self._bucket = bucket
        self._linger = linger
        self._lifetime = lifetime
        self._id = secrets.token_bytes(_ID)
        self._count = 0
        self._lock = threading.Lock()
        self._holds: set[ObjectHold] = set()
        self._told: int | None = None  # the seq that others read of us
        self._idle_since = 0.0
        self._closed = threading.Event()
        self._keeper: threading.Thread | None = None

    def hold(self, seq: int) -> ObjectHold:
        with self._lock:
            self._count += 1
            nonce = self._id + self._count.to_bytes(8 - _ID, "big")
            hold = ObjectHold(self, nonce, seq)
            # Before anybody relies on it: an operation that others do not know of is none.
            if self._told is None or self._told > seq:
                try:
                    self._tell(seq)
                except HoldfastError as error:
                    hold.refusal = error
                    return hold
            self._holds.add(hold)
            if self._keeper is None and self._linger:
                self._keeper = threading.Thread(
                    target=self._keep, name="holdfast-presence", daemon=True
                )
                self._keeper.start()
            return hold

    def release(self, hold: ObjectHold) -> None:
        with self._lock:
            self._holds.discard(hold)
            self._idle_since = time.monotonic()
            if not self._linger:
                self._tell(self._oldest())

    def close(self) -> None:
        """Take back what was told, unless something is still going on."""
        self._closed.set()
        with self._lock:
            if not self._holds:
                with suppress(HoldfastError):  # out of reach; in a while it counts as dead
                    self._tell(None)

    def oldest(self) -> int | None:
        """The lowest seq among the operations of the living; sweeps up after the dead."""
        others = [seq for _, seq in self._living() if seq != _NOBODY]
        with self._lock:
            own = [hold.seq for hold in self._holds]
        return min([*others, *own], default=None)

    def active(self) -> set[bytes]:
        """How the nonces of the living begin."""
        with self._lock:
            own = {self._id} if self._holds else set()
        return own | {who for who, seq in self._living() if seq != _NOBODY}

    # -- inside

    def _oldest(self) -> int | None:
        return min((hold.seq for hold in self._holds), default=None)

    def _key(self, seq: int) -> str:
        return f"holds/{self._id.hex()}-{seq:016x}"

    def _tell(self, seq: int | None) -> None:
        """Let others read this of us, from before the old sign goes."""
        before, self._told = self._told, seq
        if seq is not None:
            try:
                self._bucket.put(self._key(seq), b"holdfast")
            except HoldfastError:
                self._told = before
                raise
        if before is not None and before != seq:
            self._bucket.delete(self._key(before))

    def _keep(self) -> None:
        while not self._closed.wait(self._linger):
            with self._lock:
                idle = not self._holds and time.monotonic() - self._idle_since >= self._linger
                wanted = None if idle else self._oldest() or self._told
                if wanted is None and self._told is None:
                    self._keeper = None
                    return
                try:
                    self._tell(wanted)
                except HoldfastError:
                    continue  # nothing rests on it; perhaps it works the next time

    def _living(self) -> list[tuple[bytes, int]]:
        """Everybody else who gave a sign within the lifetime."""
        clock = self._key(_NOBODY)
        self._bucket.put(clock, b"holdfast")
        try:
            listed = self._bucket.listed("holds")
        finally:
            self._bucket.delete(clock)
        now = max(one.modified for one in listed)  # at least our own is there
        found = []
        for one in listed:
            match = _KEY.fullmatch(one.key)
            if match is None or match[1] == self._id.hex():
                continue
            if (now - one.modified).total_seconds() > self._lifetime:
                self._bucket.delete(one.key)
            else:
                found.append((bytes.fromhex(match[1]), int(match[2], 16)))
        return found
