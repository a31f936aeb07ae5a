"""The store's face: drafts in, checkpoints out, heads moved. Blocking and thread-safe."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model.owner import Owner
from holdfast.model.subject import Subject
from holdfast.store import references
from holdfast.store.composition import Composition
from holdfast.store.draft import Draft
from holdfast.store.faces.carrying import Carrying
from holdfast.store.faces.keeping import Keeping
from holdfast.store.faces.looking import Looking, SubjectSummary
from holdfast.store.faces.moving import Moving
from holdfast.store.faces.opened import Reference, subject_of
from holdfast.store.faces.reading import Reading
from holdfast.store.leases import TTL, Lease, Right
from holdfast.store.log.entries import Verb

__all__ = ["Store", "SubjectSummary"]


class Store(Looking, Reading, Moving, Keeping, Carrying):
    """Checkpoints of any number of subjects, in one place."""

    def draft(
        self,
        subject: Subject | str,
        parent: Reference | None = "head",
        *,
        reason: str = "manual",
        stage: str | None = None,
        tags: Mapping[str, str] | None = None,
        new: bool = False,
        aside: bool = False,
        lease: Right | None = None,
    ) -> Draft:
        """Begin a checkpoint of a subject, by default on top of its head. With `new` it is a fork:
        `commit` raises Conflict when the subject has come into being meanwhile. With `aside` the
        head stays where it is, until `move_heads` moves several at once. Raises Owned when
        somebody else has a lease of the subject; `commit` raises LeaseLost when we had it."""
        who = subject_of(subject)
        name = str(who)
        verb: Verb = "fork" if new else "aside" if aside else "checkpoint"
        composition = Composition(self._ledger)  # has read the log
        try:
            fence = self._right(name, lease)
            now = self._ledger.catalogue
            if parent == "head":
                base = now.head(name)
            else:
                base = None if parent is None else references.resolve(now, parent)
            return Draft(
                composition,
                who,
                base,
                reason=reason,
                stage=stage,
                tags=tags or {},
                verb=verb,
                fence=fence,
            )
        except BaseException:
            composition.discard()
            raise

    def lease(
        self,
        subject: Subject | str,
        *,
        owner: str | None = None,
        ttl: float = TTL,
        url: str | None = None,
        wait: float = 0.0,
    ) -> Lease:
        """Become the owner of a subject, who alone may advance it. In a `with` block the lease
        renews itself. Raises Owned when somebody else is the owner for longer than `wait` seconds;
        where one cannot see at once whether an owner lives, its renewal is waited for."""
        where = self._address if url is None else url
        return self._leases.take(
            str(subject_of(subject)), name=owner, ttl=ttl, url=where, wait=wait
        )

    def announce(self, url: str) -> None:
        """Say where whoever uses this store can be asked: leases that give no other `url` say it
        from now on."""
        self._address = url

    def owner(self, subject: Subject | str) -> Owner | None:
        """Who has the lease of a subject now."""
        return self._leases.owner(str(subject_of(subject)))

    def seal(self, message: bytes) -> str:
        """A proof for others with our key that a message comes from one of us; "" without a key."""
        return self._ledger.keyring.note(message)

    def is_sealed(self, seal: str, message: bytes) -> bool:
        """Whether somebody with a key that we know sealed a message."""
        return self._ledger.keyring.accepts_note(seal, message)
