"""An open store: its ledger, its leases, and who may do what. Every face stands on this."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Denied, UsageError
from holdfast.model.subject import Subject
from holdfast.store import references
from holdfast.store.backends.contract import Backend
from holdfast.store.backends.traffic import Traffic
from holdfast.store.cipher import PLAIN, Cipher
from holdfast.store.copies import Copies
from holdfast.store.keys import Keyring
from holdfast.store.leases import Leases, Right
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Catalogue, Record
from holdfast.store.prints import Prints

_reopening = threading.Lock()


def _begin_anew() -> None:
    """In a forked child: a thread of the parent may have held it."""
    global _reopening
    _reopening = threading.Lock()


os.register_at_fork(after_in_child=_begin_anew)

Reference = str | Checkpoint
Progress = Callable[[int, int], None]  # bytes done, bytes in all


class Opened:
    """A store in one process, and in those forked from it."""

    def __init__(
        self,
        backend: Backend,
        keyring: Keyring,
        cipher: Cipher = PLAIN,
        copies: Copies | None = None,
        prints: Prints | None = None,
    ) -> None:
        self._own_ledger = Ledger(backend, keyring, cipher, copies, prints)
        self._own_leases = Leases(self._own_ledger)
        self._process = os.getpid()
        self._address: str | None = None  # where our leases say that we can be asked

    @property
    def _ledger(self) -> Ledger:
        if self._process != os.getpid():
            with _reopening:  # several threads of the child may come here first
                if self._process != os.getpid():
                    self._reopen()
        return self._own_ledger

    @property
    def _leases(self) -> Leases:
        self._ledger  # noqa: B018  in a forked child both are made anew
        return self._own_leases

    def _reopen(self) -> None:
        """In a forked child: a thread of the parent may have held a lock, or have been in the
        middle of something."""
        old = self._own_ledger
        self._own_ledger = Ledger(
            old.backend.reopened(), old.keyring, old.cipher, old.copies, old.prints
        )
        self._own_leases = Leases(self._own_ledger)
        self._process = os.getpid()  # last: the others look at it without the lock

    @property
    def url(self) -> str:
        return self._ledger.backend.url

    def declare(self) -> None:
        """Let the log of a new encrypted store say what it is, before anybody writes plaintext."""
        self._ledger.declare()

    @property
    def encrypted(self) -> bool:
        """Whether what it holds is unreadable without its key."""
        return self._ledger.cipher.seals

    @property
    def traffic(self) -> Traffic | None:
        """What went over the network so far; None where the store is on this machine."""
        return self._ledger.backend.traffic

    def __repr__(self) -> str:
        return f"<Store {self.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def refresh(self) -> None:
        """Take in what others wrote; every other method does so by itself."""
        self._ledger.refresh()

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Inside this block, what this thread reads is of one moment: it looks once what others
        wrote, and not at every step. On a bucket, each look is a request that somebody waits for.
        """
        with self._holding(), self._ledger.steady():
            yield

    def close(self) -> None:
        self._ledger.backend.close()

    def _right(self, subject: str, lease: Right | None) -> int:
        """The token to state when advancing a subject; 0 where it has no owner."""
        if lease is None:
            self._leases.make_way(subject)
            return 0
        lease.check()
        if lease.subject != subject:
            raise UsageError(f"the lease is for {lease.subject}, not for {subject}")
        return lease.token

    def _found(self, reference: Reference, *, trust: bool) -> Record:
        """What a reference means, where it may be used; raises NotFound or Denied."""
        record = references.resolve(self._ledger.refresh(), reference)
        check_trust(record, trust)
        return record

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """Nothing that a reader may need is deleted inside this block."""
        hold = self._ledger.backend.hold(self._ledger.catalogue.seq)
        try:
            yield
        finally:
            hold.release()


def subject_of(subject: Subject | str) -> Subject:
    return subject if isinstance(subject, Subject) else Subject.parse(subject)


def tick(now: Catalogue) -> int:
    """The time of the next entry: later than all before it."""
    return now.next_time(moment.now())


def check_trust(record: Record, trust: bool) -> None:
    """Raise Denied for what an unknown key has signed, unless it is trusted all the same."""
    if record.foreign and not trust:
        checkpoint = record.checkpoint()
        raise Denied(
            f"checkpoint {checkpoint.short} was signed by a key that is not known here"
            f" ({checkpoint.signer})",
            hint="import the key (`holdfast key import`), or say --trust (in Python trust=True) if"
            " you trust its origin",
        )
