"""Moving: where a subject's head goes. Every move is an entry of the log, so it can be undone."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.checkpoint import Checkpoint, HeadMove
from holdfast.model.errors import BadInput, NotFound
from holdfast.model.subject import KINDS, Subject
from holdfast.store import references, together
from holdfast.store.composition import Composition
from holdfast.store.draft import Draft
from holdfast.store.faces.opened import Opened, Reference, check_trust, subject_of, tick
from holdfast.store.leases import Right
from holdfast.store.log.catalogue import Catalogue, Record, id_text
from holdfast.store.log.entries import Entry, Move, Verb


def _target(now: Catalogue, name: str, to: Reference | None, trust: bool) -> Record:
    """What a rollback goes back to."""
    target = references.rollback_target(now, name) if to is None else references.resolve(now, to)
    if target.commit.subject != name:
        raise BadInput(
            f"{target.commit.subject} is another subject than {name}",
            hint="fork takes a checkpoint into a new subject",
        )
    check_trust(target, trust)
    return target


class Moving(Opened):
    """The verbs restore, rollback and fork, and undoing them."""

    def restore(
        self, reference: Reference, *, trust: bool = False, lease: Right | None = None
    ) -> Checkpoint:
        """Move the head of a checkpoint's subject to it."""
        found = self._found(reference, trust=trust)
        return self._move(found, "restore", self._right(found.commit.subject, lease))

    def rollback_target(
        self, subject: Subject | str, to: Reference | None = None, *, trust: bool = False
    ) -> Checkpoint:
        """The checkpoint whose content `rollback` would go back to. Nothing is moved."""
        name = str(subject_of(subject))
        return _target(self._ledger.refresh(), name, to, trust).checkpoint()

    def rollback(
        self,
        subject: Subject | str,
        to: Reference | None = None,
        *,
        trust: bool = False,
        lease: Right | None = None,
    ) -> Checkpoint:
        """Go back to the head's parent, or to a given checkpoint: a new one of the same content."""
        name = str(subject_of(subject))
        now = self._ledger.refresh()
        head = now.head(name)
        target = _target(now, name, to, trust)
        return self._copy(
            target,
            Subject.parse(name),
            head,
            "rollback",
            rollback_of=target.commit.id,
            lease=lease,
        )

    def fork(
        self,
        reference: Reference,
        name: str,
        *,
        trust: bool = False,
        lease: Right | None = None,
    ) -> Checkpoint:
        """Begin a new subject of the same kind with the content of a checkpoint."""
        source = self._found(reference, trust=trust)
        kind = Subject.parse(source.commit.subject).kind
        first, slash, rest = name.partition("/")
        if slash and first in KINDS and first != kind:
            raise BadInput(
                f"a {kind} cannot be forked into a {first}",
                hint=f"a fork is of the same kind: call it {kind}/{rest}",
            )
        subject = Subject(kind, name.removeprefix(f"{kind}/"))
        return self._copy(source, subject, source, "fork", lease=lease)

    def undo(self, subject: Subject | str, *, lease: Right | None = None) -> HeadMove:
        """Take the last move of a subject's head back; undoing twice does it again.

        Raises NotFound when the head was at a checkpoint before that is gone.
        """
        name = str(subject_of(subject))
        self._ledger.refresh()
        fence = self._right(name, lease)

        def build(now: Catalogue) -> tuple[Entry, bytes]:
            now.check_right(name, fence)
            steps = now.steps.get(name)
            if not steps:
                raise NotFound(f"there is no subject {name}")
            last = steps[-1]
            if last.before is not None and last.before not in now.records:
                raise NotFound(
                    f"{name} was at {id_text(last.before)} before, which is gone:"
                    " what was deleted or pruned cannot be had back",
                    hint=f"`holdfast log {name}` shows what is left",
                )
            move = Move(
                subject=name,
                before=last.after,
                after=last.before,
                verb="undo",
                time=tick(now),
                fence=fence,
            )
            return move, b""

        return self._ledger.append(build).steps[name][-1].move(name)

    def move_heads(
        self,
        *which: Reference,
        verb: together.Verb = "restore",
        leases: Iterable[Right] = (),
        trust: bool = False,
    ) -> tuple[Checkpoint, ...]:
        """Move the heads of several subjects at once, each to one of its checkpoints: all of them
        move or none. Raises NotFound, and Owned or LeaseLost for any of them."""
        targets = [self._found(one, trust=trust) for one in which]
        held = {lease.subject: lease for lease in leases}
        names = [target.commit.subject for target in targets]
        fences = {name: self._right(name, held.get(name)) for name in names}
        return together.move_heads(self._ledger, targets, fences, verb)

    def _move(self, target: Record, verb: Verb, fence: int) -> Checkpoint:
        name = target.commit.subject

        def build(now: Catalogue) -> tuple[Entry, bytes]:
            now.check_right(name, fence)
            now.record(target.commit.id)
            move = Move(
                subject=name,
                before=now.heads.get(name),
                after=target.commit.id,
                verb=verb,
                time=tick(now),
                fence=fence,
            )
            return move, b""

        return self._ledger.append(build).record(target.commit.id).checkpoint()

    def _copy(
        self,
        source: Record,
        subject: Subject,
        parent: Record | None,
        verb: Verb,
        rollback_of: bytes | None = None,
        lease: Right | None = None,
    ) -> Checkpoint:
        """A checkpoint with the content of another one; stores nothing but its entry."""
        short = source.checkpoint().short
        reason = (
            f"rollback to {short}" if verb == "rollback" else f"fork of {source.commit.subject}"
        )
        with Draft(
            Composition(self._ledger),
            subject,
            parent,
            reason=reason,
            stage=source.commit.stage,
            tags={},
            verb=verb,
            rollback_of=rollback_of,
            fence=self._right(str(subject), lease),
        ) as draft:
            draft.keep_all(source)
            return draft.commit()
