"""Looking: what there is, told from the log. Nothing of the content is read but to compare it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint, HeadMove, Manifest
from holdfast.model.report import Problem, Verification
from holdfast.model.subject import Kind, Subject
from holdfast.store import comparison, references, usage, verifying
from holdfast.store.changes import Changes
from holdfast.store.changes import since as changes_since
from holdfast.store.faces.opened import Opened, Progress, Reference, subject_of
from holdfast.store.log.catalogue import Catalogue, Record
from holdfast.store.usage import Usage

List = list  # inside the class, `list` is the verb


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSummary:
    """A subject and where it stands."""

    subject: Subject
    head: Checkpoint | None
    count: int
    time: datetime
    size_bytes: int


class Looking(Opened):
    """The verbs list, show, diff and verify, and what else one asks a store."""

    def list(
        self,
        subject: Subject | str | None = None,
        kind: Kind | None = None,
        limit: int | None = None,
        *,
        after: int = 0,
        look: bool = True,
    ) -> list[Checkpoint]:
        """Checkpoints, newest first; nothing but the log is read.

        `after` is the `sequence` of one that is known: only later ones are listed. Without a
        `look`, those that are known here, as after a commit of one's own.
        """
        who = None if subject is None else str(subject_of(subject))
        found: list[Checkpoint] = []
        for record in self._known(look).newest_first(who, after):
            if limit is not None and len(found) >= limit:
                break
            if kind is not None and not record.commit.subject.startswith(f"{kind}/"):
                continue
            found.append(record.checkpoint())
        return found

    def count(self, subject: Subject | str | None = None, *, look: bool = True) -> int:
        """How many checkpoints there are, of one subject or in all; without a `look`, as far as is
        known here, as after a commit of one's own."""
        now = self._known(look)
        if subject is None:
            return len(now.records)
        return len(now.lines.get(str(subject_of(subject)), ()))

    def subjects(self) -> List[SubjectSummary]:
        """Every subject that has a checkpoint, the latest touched first."""
        now = self._ledger.refresh()
        groups: dict[str, list[Record]] = {}
        for record in now.all_records():
            groups.setdefault(record.commit.subject, []).append(record)
        summaries = []
        # By the log's order, and not by times: another machine's clock may be wrong.
        for name, records in sorted(groups.items(), key=lambda each: _last_entry(now, *each)):
            head = now.head(name)
            summaries.append(
                SubjectSummary(
                    subject=Subject.parse(name),
                    head=head.checkpoint() if head else None,
                    count=len(records),
                    time=_last_touched(now, name, records),
                    size_bytes=(head or records[-1]).commit.size,
                )
            )
        return summaries[::-1]

    def resolve(self, reference: Reference) -> Checkpoint:
        """The checkpoint that an id, a short id, a subject, an ancestor or a tag means."""
        return references.resolve(self._ledger.refresh(), reference).checkpoint()

    def show(self, reference: Reference) -> Manifest:
        """A checkpoint and its parts."""
        record = references.resolve(self._ledger.refresh(), reference)
        parts = tuple(part.value() for part in self._ledger.part_records(record))
        return Manifest(checkpoint=record.checkpoint(), parts=parts)

    def head(self, subject: Subject | str) -> Checkpoint | None:
        record = self._ledger.refresh().head(str(subject_of(subject)))
        return record.checkpoint() if record else None

    def history(self, subject: Subject | str) -> List[HeadMove]:
        """How a subject's head moved, oldest first."""
        return self._ledger.refresh().moves(str(subject_of(subject)))

    @property
    def sequence(self) -> int:
        """The log's last entry, as far as it is known here."""
        return self._ledger.catalogue.seq

    def changes(self, since: int) -> Changes:
        """What happened after the log's entry `since`, for whoever shows the store as it is."""
        return changes_since(self._ledger, since)

    def usage(self) -> Usage:
        """What the store holds and what that takes on disk."""
        return usage.measure(self._ledger)

    def noticed(self) -> List[Problem]:
        """What of the log could not be read so far: what is listed may lack a checkpoint, or a
        move of a head. `verify` looks at everything."""
        return self._known(look=False).noticed

    def verify(self, deep: bool = False, progress: Progress | None = None) -> Verification:
        """Check that everything the log promises is there; `deep` reads every byte."""
        return verifying.verify(self._ledger, deep, progress)

    def diff(self, a: Reference, b: Reference, *, trust: bool = False) -> comparison.Diff:
        """What changed from one checkpoint to another."""
        before, after = (self._found(one, trust=trust) for one in (a, b))
        return comparison.diff(self._ledger, before, after)

    def _known(self, look: bool) -> Catalogue:
        return self._ledger.refresh() if look else self._ledger.catalogue


def _last_entry(now: Catalogue, name: str, records: list[Record]) -> int:
    """The entry that last moved a subject's head, or last brought a checkpoint of it."""
    steps = now.steps.get(name)
    return max(steps[-1].sequence if steps else 0, records[-1].frame.seq)


def _last_touched(now: Catalogue, name: str, records: list[Record]) -> datetime:
    """When a subject's head last moved; one whose checkpoints were only imported has none yet."""
    steps = now.steps.get(name)
    last = steps[-1].time if steps else max(record.commit.time for record in records)
    return moment.from_micros(last)
