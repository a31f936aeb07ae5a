"""Keeping: what stays, by name, by pin or by policy, and letting the rest go."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import NotFound, Owned
from holdfast.model.subject import Subject
from holdfast.store import collect, doubts, references, retention
from holdfast.store.faces.opened import Opened, Progress, Reference, subject_of, tick
from holdfast.store.leases import Right
from holdfast.store.log.catalogue import Catalogue, id_bytes
from holdfast.store.log.entries import Drop, Entry, Label, Move


class Keeping(Opened):
    """Labels, and the verbs delete and prune."""

    def tag(self, reference: Reference, name: str, value: str = "") -> Checkpoint:
        """Give a checkpoint a name. A tag's newest holder is what the name means; one that is
        foreign only where there is no other."""
        references.check_tag(name)
        return self._label(reference, set_tags={name: value})

    def untag(self, reference: Reference, name: str) -> Checkpoint:
        """Take a name away; raises NotFound when the checkpoint does not have it."""
        found = references.resolve(self._ledger.refresh(), reference).checkpoint()
        if name not in found.tags:
            has = ", ".join(sorted(found.tags)) or "no tags"
            raise NotFound(f"checkpoint {found.short} has no tag {name!r}", hint=f"it has {has}")
        return self._label(found, unset=(name,))

    def pin(self, reference: Reference) -> Checkpoint:
        """Keep a checkpoint whatever retention says."""
        return self._label(reference, pinned=True)

    def unpin(self, reference: Reference) -> Checkpoint:
        return self._label(reference, pinned=False)

    def _label(
        self,
        reference: Reference,
        *,
        set_tags: dict[str, str] | None = None,
        unset: tuple[str, ...] = (),
        pinned: bool | None = None,
    ) -> Checkpoint:
        found = references.resolve(self._ledger.refresh(), reference).commit.id

        def build(now: Catalogue) -> tuple[Entry, bytes]:
            now.record(found)
            label = Label(id=found, set=set_tags or {}, unset=unset, pinned=pinned, time=tick(now))
            return label, b""

        return self._ledger.append(build).record(found).checkpoint()

    def delete(self, *which: Reference, lease: Right | None = None) -> list[Checkpoint]:
        """Drop checkpoints. A head that goes moves to its nearest ancestor that stays."""
        now = self._ledger.refresh()
        doomed = {references.resolve(now, one).commit.id for one in which}
        removed = [now.record(one).checkpoint() for one in doomed]
        fences = {str(one.subject): 0 for one in removed}
        for name in fences:
            fences[name] = self._right(name, lease)
        self._drop(doomed, fences)
        return removed

    def prune(
        self,
        keep: retention.Policy | None = None,
        subject: Subject | str | None = None,
        *,
        dry_run: bool = False,
        accept_loss: bool = False,
        progress: Progress | None = None,
    ) -> collect.PruneReport:
        """Apply a retention policy to each subject, then give back the space nothing needs. Of a
        subject that somebody else owns nothing is dropped: that is up to its owner.

        Raises Corrupt when the log is damaged: what cannot be read may have been a pin, or have
        named what now seems to be dead. `accept_loss` gives that up and folds the damage away.
        `progress` is told of the bytes that are moved out of what is mostly dead.
        """
        only = None if subject is None else str(subject_of(subject))
        policy = keep or retention.DEFAULT
        found = doubts.look(self._ledger)
        now = self._ledger.catalogue
        owned = self._leases.others(now)
        if dry_run:
            owned = {name: who for name, who in owned.items() if self._leases.owner(name)}
            plan = collect.plan(now, policy, only, moment.now(), owned)
            return collect.estimate(self._ledger, plan, found)
        if not accept_loss:
            found.refuse()
        for name in collect.plan(now, policy, only, moment.now(), owned).owned:
            with suppress(Owned):  # else its owner is gone, and has no right to it any more
                self._leases.make_way(name)
        now = self._ledger.catalogue
        plan = collect.plan(now, policy, only, moment.now(), self._leases.others(now))
        dead = collect.entries(self._ledger.catalogue, plan)

        def build(now: Catalogue) -> tuple[Entry, bytes]:
            # Decided anew on each try: a pin, a restore or a lease that came first counts.
            nonlocal plan, dead
            plan = collect.plan(now, policy, only, moment.now(), self._leases.others(now))
            dead = collect.entries(now, plan)
            doomed = tuple(cast(bytes, id_bytes(one.id)) for one in plan.removed)
            return Drop(ids=doomed, time=tick(now)), b""

        if plan.removed:
            self._ledger.append(build)
        return collect.execute(self._ledger, plan, dead, found, progress)

    def _drop(self, doomed: set[bytes], fences: Mapping[str, int]) -> None:
        def build(now: Catalogue) -> tuple[Entry, bytes]:
            # No head may point to what is gone. It is seen to here, one entry at a time, because
            # others move heads and drop checkpoints, too.
            for subject, fence in fences.items():
                now.check_right(subject, fence)
                if (head := now.heads.get(subject)) in doomed:
                    move = Move(
                        subject=subject,
                        before=head,
                        after=references.nearest_left(now, subject, doomed),
                        verb="delete",
                        time=tick(now),
                        fence=fence,
                    )
                    return move, b""
            still = tuple(one for one in sorted(doomed) if one in now.records)
            return Drop(ids=still, time=tick(now)), b""

        now = self._ledger.catalogue
        while any(one in now.records for one in doomed):
            now = self._ledger.append(build)
