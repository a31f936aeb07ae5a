"""Leases: the right to advance a subject while something runs it.

The log says who owns a subject, and the number of that entry is the token which every commit
states; so the log's order, and no clock, decides who may commit. Clocks only decide how long an
owner may be silent before others may take its place, and each looks at its own.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol

from holdfast.model import moment
from holdfast.model.errors import BadInput, HoldfastError, LeaseLost, Owned, UsageError
from holdfast.model.owner import Owner
from holdfast.store.backends.contract import Beat, Pulse
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Catalogue
from holdfast.store.log.entries import BEAT_SIZE, Disown, Entry, Own

TTL = 15.0
_RENEWALS = 3  # in a lease's time
_MARGIN = 0.2  # of a lease's time: an owner that cannot renew gives up so much earlier
_LOOK = 0.05  # of a lease's time between two looks at somebody else's sign of life

Sign = Literal["gone", "alive", "unclear"]
OnLost = Callable[[HoldfastError], None]


class Right(Protocol):
    """What lets one advance a subject: a lease, or the word of the process that keeps it."""

    subject: str
    token: int

    def check(self) -> None:
        """Raise LeaseLost when it is known to be over."""
        ...


@dataclass(slots=True)
class Borrowed:
    """The right of a lease that another process of ours keeps. Only a commit knows whether it
    still holds: whoever states the token of a lease that is over is refused."""

    subject: str
    token: int

    def check(self) -> None:
        """The log is asked when something is appended."""


class Watch:
    """What was seen of owners' signs of life. Pure: what and when are told."""

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[bytes, float]] = {}

    def look(self, owner: Owner, pulse: Pulse | None, now: float) -> Sign:
        """What a pulse found at a time of our monotonic clock says of the owner."""
        if pulse is None:
            self._seen.pop(owner.beat, None)
            return "gone"
        nonce, since = self._seen.get(owner.beat, (pulse.nonce, now))
        if owner.beat not in self._seen or nonce != pulse.nonce:
            renewed = owner.beat in self._seen
            self._seen[owner.beat] = (pulse.nonce, now)
            return "alive" if renewed or pulse.vouched else "unclear"
        if now - since >= owner.lasts:
            return "gone"
        return "alive" if pulse.vouched else "unclear"


class Leases:
    """Takes leases of one store, and makes way where an owner is gone."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._watch = Watch()
        self._taken: weakref.WeakSet[Lease] = weakref.WeakSet()

    def others(self, now: Catalogue) -> dict[str, str]:
        """The subjects that somebody else owns, as far as the log says, and their owners' names."""
        ours = {lease.token for lease in self._taken}
        return {name: o.name for name, o in list(now.owners.items()) if o.token not in ours}

    def owner(self, subject: str) -> Owner | None:
        """Who owns the subject now; None also when its owner is known to be gone."""
        owner = self.ledger.refresh().owners.get(subject)
        return None if owner is None or self._look(owner) == "gone" else owner

    def take(
        self, subject: str, *, name: str | None, ttl: float, url: str | None, wait: float
    ) -> Lease:
        """Become the owner; raises Owned when somebody else is and stays so for `wait` seconds."""
        if ttl <= 0 or wait < 0:
            raise BadInput(f"a lease of {ttl:g} s, waiting for {wait:g} s, makes no sense")
        deadline = time.monotonic() + wait
        beat = self.ledger.backend.beat(beat_name := secrets.token_bytes(BEAT_SIZE))
        try:
            while True:
                before = self._await(subject, deadline)

                def build(now: Catalogue, before: Owner | None = before) -> tuple[Entry, bytes]:
                    _check_still(now, subject, before)
                    own = Own(
                        subject=subject,
                        owner=name or f"{socket.gethostname()}:{os.getpid()}",
                        url=url,
                        beat=beat_name,
                        lasts=round(ttl * 1000) or 1,
                        time=now.next_time(moment.now()),
                    )
                    return own, b""

                started = time.monotonic()
                try:
                    now = self.ledger.append(build)
                except _ChangedError:
                    continue  # somebody was faster: look again
                self._bury(before)
                lease = Lease(self.ledger, now.owners[subject], beat, started)
                self._taken.add(lease)
                return lease
        except BaseException:
            beat.stop()
            raise

    def make_way(self, subject: str) -> None:
        """End the lease of an owner that is gone; raises Owned when it is not."""
        if subject not in self.ledger.catalogue.owners:
            return  # as far as was read; whoever appends looks again
        while (before := self._await(subject, 0)) is not None:

            def build(now: Catalogue, before: Owner = before) -> tuple[Entry, bytes]:
                _check_still(now, subject, before)
                time = now.next_time(moment.now())
                return Disown(subject=subject, token=before.token, time=time), b""

            try:
                self.ledger.append(build)
            except _ChangedError:
                continue
            self._bury(before)
            return

    def _bury(self, owner: Owner | None) -> None:
        """Remove what is left of the sign of life of an owner that is gone."""
        if owner is not None:
            self.ledger.backend.end_beat(owner.beat)

    def _await(self, subject: str, deadline: float) -> Owner | None:
        """Wait until the subject has no living owner; gives the one that is gone, if there is."""
        while (owner := self.ledger.refresh().owners.get(subject)) is not None:
            sign = self._look(owner)
            if sign == "gone":
                break
            if sign == "alive" and time.monotonic() >= deadline:
                raise Owned(subject, owner.name, owner.url)
            time.sleep(owner.lasts * _LOOK)
        return owner

    def _look(self, owner: Owner) -> Sign:
        pulse = self.ledger.backend.pulse(owner.beat)
        return self._watch.look(owner, pulse, time.monotonic())


class Lease:
    """The right to advance one subject. As a context manager it renews itself in the background."""

    def __init__(self, ledger: Ledger, owner: Owner, beat: Beat, started: float) -> None:
        self._ledger = ledger
        self._beat = beat
        self._until = started + owner.lasts
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._hurry = threading.Event()  # the next renewal is not to wait
        self._failure: HoldfastError | None = None
        self._keeper: threading.Thread | None = None
        # When the next renewal is to begin, and when the one under way has begun.
        self._renews_at = started + owner.lasts
        self._renewing: float | None = None
        self._process = os.getpid()
        self.record = owner
        self.subject = str(owner.subject)
        self.owner = owner.name
        self.url = owner.url
        self.token = owner.token
        self.ttl = owner.lasts

    def __repr__(self) -> str:
        state = "ended" if self._ended.is_set() else "in force"
        return f"<Lease {self.subject} {self.token} ({self.owner}), {state}>"

    @property
    def lost(self) -> bool:
        """Whether it is known to be over without having been released."""
        return self._failure is not None

    @property
    def seconds_left(self) -> float:
        """How long others will still take us for alive, at least."""
        return max(0.0, self._until - time.monotonic())

    def check(self) -> None:
        """Raise LeaseLost when it is known to be over. Only a commit knows for certain."""
        if self._process != os.getpid():
            raise UsageError("a lease belongs to the process that took it")
        if self._failure is not None:
            raise self._loss(self._failure)
        if self._ended.is_set():
            raise LeaseLost(f"the lease of {self.subject} was released")

    def renew(self) -> None:
        """Show that we are alive; raises LeaseLost when somebody else took the subject."""
        self.check()
        started = time.monotonic()
        try:
            self._beat.renew()
            self._ledger.glance().check_right(self.subject, self.token)
        except LeaseLost as error:
            self._lose(error)
            if self._keeper is None:
                self._beat.stop()
            raise
        self._until = started + self.ttl

    def keep(self, on_lost: OnLost | None = None) -> Lease:
        """Renew in the background until it is released. `on_lost` is called once, in that thread,
        when it was taken away or cannot be renewed, in time to stop what it protects."""
        self.check()
        with self._lock:
            if self._keeper is None:
                self._keeper = threading.Thread(
                    target=self._keep, args=(on_lost,), name="holdfast-lease", daemon=True
                )
                self._keeper.start()
        return self

    def release(self) -> None:
        """Give it back; may be called twice. Others need not wait for it to run out."""
        if self._process != os.getpid() or self._ended.is_set():
            return
        self._ended.set()
        self._hurry.set()
        if self._keeper is not None and self._keeper is not threading.current_thread():
            self._keeper.join()

        def build(now: Catalogue) -> tuple[Entry, bytes]:
            now.check_right(self.subject, self.token)
            time = now.next_time(moment.now())
            return Disown(subject=self.subject, token=self.token, time=time), b""

        try:
            self._ledger.append(build)
        except LeaseLost:
            return  # somebody else's already
        finally:
            self._beat.stop()

    def __enter__(self) -> Lease:
        return self.keep()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _keep(self, on_lost: OnLost | None) -> None:
        """See to it that whoever relies on the lease is told in time, even if a renewal hangs."""
        threading.Thread(target=self._renew_often, name="holdfast-renewal", daemon=True).start()
        excused = False
        while True:
            due = self._until - self.ttl * _MARGIN
            if self._ended.wait(max(0.0, due - time.monotonic())):
                break
            late = time.monotonic() - due
            if due < self._until - self.ttl * _MARGIN:
                excused = False  # it was renewed
            elif not excused and (late > self.ttl * _LOOK or self._is_overdue()):
                # The whole process stood still. If nobody took its place, it goes on.
                excused = True
                self._hurry.set()  # the renewal may have slept on as if no time had passed
                self._ended.wait(self.ttl * _MARGIN)
            else:
                self._lose(HoldfastError("it could not be renewed in time"))
        if self._failure is not None:
            if on_lost is not None:
                on_lost(self._loss(self._failure))
            self._beat.stop()

    def _is_overdue(self) -> bool:
        """Whether a renewal begins only now that should have begun long ago: one that hangs has
        begun in time."""
        now = time.monotonic()
        began = self._renewing or now
        return began > self._renews_at + self.ttl * _LOOK and now - began <= self.ttl * _LOOK

    def _renew_often(self) -> None:
        pause = self.ttl / _RENEWALS
        while True:
            self._renews_at, self._renewing = time.monotonic() + pause, None
            self._hurry.wait(pause)
            if self._ended.is_set():
                return
            self._hurry.clear()
            self._renewing = time.monotonic()
            try:
                self.renew()
                pause = self.ttl / _RENEWALS
            except LeaseLost:
                return
            except HoldfastError:
                pause = self.ttl * _LOOK  # perhaps it works in a moment

    def _loss(self, why: HoldfastError) -> LeaseLost:
        """For whoever relied on it; what a commit found says all of it already."""
        if isinstance(why, LeaseLost):
            return why
        return LeaseLost(f"the lease of {self.subject} was lost: {why}")

    def _lose(self, error: HoldfastError) -> None:
        self._failure = self._failure or error
        self._ended.set()
        self._hurry.set()


class _ChangedError(Exception):
    """The subject's owner is another one than a moment ago."""


def _check_still(now: Catalogue, subject: str, before: Owner | None) -> None:
    if now.owners.get(subject) != before:
        raise _ChangedError
