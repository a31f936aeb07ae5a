"""Copying: one store's checkpoints into another, and only the chunks that are missing there.

Each checkpoint is complete when it is committed, so a copy that was interrupted goes on where it
stopped. Nothing is ever removed from the store that is copied to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, Conflict, Corrupt, NotFound, Owned
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Catalogue, Record, id_text
from holdfast.store.log.entries import Entry, Label, Move
from holdfast.store.parts.contents import named_by_part, walk
from holdfast.store.transfer.receiver import Receiver
from holdfast.store.transfer.waybill import waybill_of

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """What a copy did, or would do."""

    copied: tuple[Checkpoint, ...]  # oldest first, as they are in the store that was copied to
    already: int  # checkpoints that were there before
    moved: tuple[str, ...]  # subjects whose head follows
    apart: tuple[tuple[str, str], ...]  # subjects whose head stays, and why
    failed: tuple[tuple[Checkpoint, str], ...]  # those that could not be read, and why
    transferred_bytes: int  # of chunks, before compression
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Which checkpoints are to come, which have other labels, and where heads should stand."""

    missing: tuple[Record, ...]
    present: tuple[Record, ...]
    heads: dict[str, bytes]  # of those that have one, and do not stand there already
    apart: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(record.commit.size for record in self.missing)


def plan(source: Catalogue, target: Catalogue, subject: str | None) -> CopyPlan:
    """Decide what a copy would do. A head follows where the source's has been, too; elsewhere
    somebody went on from another checkpoint, and it stays."""
    wanted = [r for r in source.all_records() if subject in (None, r.commit.subject)]
    if subject is not None and not wanted:
        raise NotFound(f"there is no subject {subject} to copy")
    heads: dict[str, bytes] = {}
    apart: dict[str, str] = {}
    for name in dict.fromkeys(record.commit.subject for record in wanted):
        head, there = source.head(name), target.head(name)
        if head is None or (there is not None and there.commit.id == head.commit.id):
            continue
        if there is None or has_been(source, head, there.commit.id):
            heads[name] = head.commit.id
        else:
            apart[name] = "it went on from another checkpoint"
    return CopyPlan(
        tuple(record for record in wanted if record.commit.id not in target.records),
        tuple(record for record in wanted if record.commit.id in target.records),
        heads,
        apart,
    )


def has_been(source: Catalogue, head: Record, checkpoint: bytes) -> bool:
    """Whether a subject's head comes from a checkpoint, or stood there before it was moved."""
    moves = source.moves(head.commit.subject)
    if id_text(checkpoint) in (move.after for move in moves):
        return True
    pending, seen = [head.commit.id], {head.commit.id}
    while pending:
        record = source.records.get(pending.pop())
        more = set(record.commit.parents) - seen if record else set()
        seen |= more
        pending += more
    return checkpoint in seen


def copy(
    source: Ledger,
    target: Ledger,
    subject: str | None,
    *,
    dry_run: bool,
    progress: Progress | None,
) -> CopyReport:
    """Bring everything that is missing; raises BadInput when both are the same store."""
    if source.backend.store_id == target.backend.store_id:
        raise BadInput("both are the same store", hint="name another one to copy to")
    decided = plan(source.refresh(), target.refresh(), subject)
    if dry_run:
        return CopyReport(
            copied=tuple(record.checkpoint() for record in decided.missing),
            already=len(decided.present),
            moved=tuple(decided.heads),
            apart=tuple(decided.apart.items()),
            failed=(),
            transferred_bytes=0,
            dry_run=True,
        )
    return _Copy(source, target, decided, progress).run()


class _Copy:
    def __init__(
        self, source: Ledger, target: Ledger, decided: CopyPlan, progress: Progress | None
    ) -> None:
        self._source = source
        self._target = target
        self._plan = decided
        self._progress = progress
        self._done = 0
        self._transferred = 0

    def run(self) -> CopyReport:
        copied: list[Checkpoint] = []
        failed: list[tuple[Checkpoint, str]] = []
        for record in self._plan.missing:
            try:
                copied += self._bring(record)
            except (Corrupt, NotFound, Conflict) as error:
                # The others can be saved all the same.
                failed.append((record.checkpoint(), str(error)))
            self._done += record.commit.size
            self._tell(0)
        for record in self._plan.present:
            self._label(record)
        apart = dict(self._plan.apart)
        moved = []
        for subject, head in self._plan.heads.items():
            refusal = self._move(subject, head)
            if refusal is None:
                moved.append(subject)
            else:
                apart[subject] = refusal
        return CopyReport(
            copied=tuple(copied),
            already=len(self._plan.present),
            moved=tuple(moved),
            apart=tuple(apart.items()),
            failed=tuple(failed),
            transferred_bytes=self._transferred,
        )

    def _bring(self, record: Record) -> list[Checkpoint]:
        """One checkpoint, with whatever the target has not got of it."""
        source = self._source
        hold = source.backend.hold(source.catalogue.seq)
        try:
            waybill = waybill_of(source, source.refresh().record(record.commit.id))
            with Receiver(self._target) as receiver:
                receiver.announce(waybill)
                roots = [chunk for part in waybill.parts for chunk in named_by_part(part)]
                seen = 0
                for chunk in walk(roots, receiver.names):
                    if not receiver.has(chunk):
                        content = source.library.verified(chunk.id)
                        receiver.take(chunk, content)
                        self._transferred += len(content.plain)
                    seen += receiver.size(chunk)
                    self._tell(min(seen, record.commit.size))
                # Who vouched for it where it comes from did so for us, if that key is known here.
                vouched = record.commit.trusted and not record.foreign
                return receiver.commit(trust=vouched, heads=False)
        finally:
            hold.release()

    def _label(self, record: Record) -> None:
        """Tags and pins that the source has and the target has not. What only the target has
        stays."""
        there = self._target.catalogue.records.get(record.commit.id)
        if there is None:
            return
        tags = {name: v for name, v in record.tags.items() if there.tags.get(name) != v}
        pin = record.pinned and not there.pinned
        if tags or pin:

            def build(now: Catalogue) -> tuple[Entry, bytes]:
                time = now.next_time(moment.now())
                pinned = True if pin else None
                return Label(id=record.commit.id, set=tags, unset=(), pinned=pinned, time=time), b""

            self._target.append(build)

    def _move(self, subject: str, head: bytes) -> str | None:
        """Let a head follow; says why when it cannot."""

        def build(now: Catalogue) -> tuple[Entry, bytes]:
            now.check_right(subject, 0)
            now.record(head)
            there, source = now.head(subject), self._source.catalogue
            if there is not None and not has_been(source, source.record(head), there.commit.id):
                raise Conflict("it moved meanwhile")
            return Move(
                subject=subject,
                before=now.heads.get(subject),
                after=head,
                verb="import",
                time=now.next_time(moment.now()),
            ), b""

        try:
            self._target.append(build)
        except (Owned, Conflict, NotFound) as error:
            return str(error)
        return None

    def _tell(self, more: int) -> None:
        if self._progress is not None:
            self._progress(self._done + more, self._plan.size)
