"""The catalogue: the fold of the log. Pure: entries in, state out."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from holdfast.model import moment
from holdfast.model.checkpoint import HeadMove
from holdfast.model.errors import BadInput, Conflict, Corrupt, LeaseLost, NotFound, Owned
from holdfast.model.owner import Owner
from holdfast.model.report import Problem
from holdfast.model.subject import Subject
from holdfast.store.log.entries import (
    HERE,
    STILL,
    Commit,
    Condemn,
    Disown,
    Drop,
    Encrypted,
    Entry,
    Label,
    Move,
    Moves,
    Own,
    Relocate,
    glimpse,
    split_names,
)
from holdfast.store.log.frames import Frame
from holdfast.store.log.records import Record, Step, id_bytes, id_text

_NEWS = 8  # checkpoints; whoever follows a line finds that many new ones at most, mostly

__all__ = ["Catalogue", "Record", "Step", "id_bytes", "id_text"]


@dataclass(slots=True)
class Catalogue:
    """Everything the log says, up to entry `seq`."""

    seq: int = 0
    base: int = 0  # a snapshot speaks up to here, and leaves out what no longer matters
    last_time: int = 0
    last_drop: int = 0  # the entry that last dropped checkpoints
    # Both in the log's order, which alone decides what is newest.
    records: dict[bytes, Record] = field(default_factory=dict)
    lines: dict[str, dict[bytes, Record]] = field(default_factory=dict)  # by subject
    heads: dict[str, bytes | None] = field(default_factory=dict)
    owners: dict[str, Owner] = field(default_factory=dict)
    steps: dict[str, list[Step]] = field(default_factory=dict)  # of each subject's head
    relocations: dict[bytes, list[tuple[int, tuple[bytes, ...]]]] = field(default_factory=dict)
    condemned: dict[bytes, int] = field(default_factory=dict)
    others: list[Frame] = field(default_factory=list)  # every entry that is not a commit
    notes: list[str] = field(default_factory=list)  # what is odd and no problem
    ours: set[str] = field(default_factory=set)  # subjects that an entry by a known key named
    disbelieved: set[int] = field(default_factory=set)  # entries by unknown keys, of such subjects
    _named: set[bytes] = field(default_factory=set)
    _problems: list[Problem] = field(default_factory=list)
    _skimmed: deque[Record] = field(default_factory=deque)  # whose entries nobody asked for yet
    _settling: threading.RLock = field(default_factory=threading.RLock)

    def apply(
        self, frame: Frame, entry: Entry, *, foreign: bool, known: bool | None = None
    ) -> Record | None:
        """Take the next entry in; gives the record of a commit. `foreign`: made by an unknown key.
        `known`: signed by a known one, as an import of what a stranger made is.

        Who has no key that is known here cannot move the head of a subject of ours, nor tag or pin
        its checkpoints, nor take or end its lease (spec/store-v1.md, section 9).
        """
        if frame.seq > self.seq:
            self.seq = frame.seq
        named = self._subjects(entry)
        if known or (known is None and not foreign):
            self.ours.update(named)
        elif not isinstance(entry, Commit) and not self.ours.isdisjoint(named):
            self.others.append(frame)  # others may know the key
            self.disbelieved.add(frame.seq)
            which = ", ".join(sorted(self.ours & named))
            self.notes.append(
                f"log entry {frame.seq}: a {type(entry).__name__.lower()} of {which}, signed by the"
                f" unknown key {frame.key_id.hex()}, is ignored"
            )
            return None
        match entry:
            case Commit():
                return self._commit(frame, entry, foreign)
            case Move():
                self.others.append(frame)
                self._step(entry.subject, Step(frame.seq, entry))
            case Moves():
                self.others.append(frame)
                for each in entry.heads:
                    self._step(each.subject, Step(frame.seq, entry.move(each)))
            case Label():
                self.others.append(frame)
                if record := self.records.get(entry.id):
                    record.labels = {
                        name: value
                        for name, value in {**record.tags, **entry.set}.items()
                        if name not in entry.unset
                    }
                    record.pinned = record.pinned if entry.pinned is None else entry.pinned
            case Drop():
                self.others.append(frame)
                self.last_drop = frame.seq
                for checkpoint in entry.ids:
                    if gone := self.records.pop(checkpoint, None):
                        del self.lines[gone.subject][checkpoint]
            case Relocate():
                self.others.append(frame)
                to = tuple(split_names(entry.to))
                self.relocations.setdefault(entry.volume, []).append((frame.seq, to))
                self._named.update(to)
            case Condemn():
                self.others.append(frame)
                for volume in split_names(entry.volumes):
                    self.condemned[volume] = frame.seq
            case Own():
                self.others.append(frame)
                self.owners[entry.subject] = _owner(entry, frame.seq)
            case Encrypted():
                self.others.append(frame)
            case Disown():
                self.others.append(frame)
                if self.owns(entry.subject, entry.token):
                    del self.owners[entry.subject]
        self.last_time = max(self.last_time, getattr(entry, "time", 0))
        return None

    def skim(self, frame: Frame, header: bytes) -> Record | None:
        """Take in a commit that is signed by somebody we know, and look at what it begins with, no
        more: opening a store with many checkpoints is waited for. None: it is to be decoded."""
        found = glimpse(header)
        # The first of a subject tells whether the subject's name makes sense.
        if found is None or found.subject not in self.steps:
            return None
        if frame.seq > self.seq:
            self.seq = frame.seq
        record = Record(found.id, found.subject, frame, False, header)
        self.ours.add(found.subject)
        self.heads[found.subject] = found.id
        self.steps[found.subject].append(Step(frame.seq, record))
        self._add(record)
        self._skimmed.append(record)
        return record

    def _subjects(self, entry: Entry) -> set[str]:
        """The subjects whose head, labels or lease an entry is about."""
        match entry:
            case Commit() | Move() | Own() | Disown():
                return {entry.subject}
            case Moves():
                return {head.subject for head in entry.heads}
            case Label():
                record = self.records.get(entry.id)
                return {record.subject} if record is not None else set()
        return set()

    def settle(self) -> None:
        """Decode what was skimmed. An entry that makes no sense is a problem, and no checkpoint."""
        with self._settling:  # nobody may see half of it: what is not named is deleted
            while self._skimmed:
                record = self._skimmed.popleft()  # another thread may be adding to them
                try:
                    commit = record.commit
                    moment.from_micros(commit.time)
                except (Corrupt, BadInput) as error:
                    self._forget(record)
                    self.blame(f"log entry {record.frame.seq}", str(error))
                else:
                    self._name(record.frame, commit)
                    self.last_time = max(self.last_time, commit.time)

    def blame(self, where: str, what: str) -> None:
        """Remember that something of the log is lost."""
        self._problems.append(Problem(where=where, what=what))

    def _commit(self, frame: Frame, commit: Commit, foreign: bool) -> Record:
        record = Record(
            commit.id,
            commit.subject,
            frame,
            foreign,
            decoded=commit,
            labels=commit.labels,
            pinned=commit.pinned,
        )
        # First, because these raise when the entry makes no sense.
        if commit.verb in STILL:
            record.checkpoint()
        else:
            self._step(commit.subject, Step(frame.seq, record))
        if commit.verb != "import":
            self.last_time = max(self.last_time, commit.time)
        self._add(record)
        self._name(frame, commit)
        return record

    def _add(self, record: Record) -> None:
        # Away from its old place: all that goes through the records relies on the log's order.
        if twice := self.records.pop(record.id, None):
            del self.lines[twice.subject][record.id]
        self.records[record.id] = record
        line = self.lines.get(record.subject)
        if line is None:
            line = self.lines[record.subject] = {}
        line[record.id] = record

    def _forget(self, record: Record) -> None:
        """Let a record be as if its entry had not been there."""
        if self.records.get(record.id) is record:
            del self.records[record.id], self.lines[record.subject][record.id]
        steps = [step for step in self.steps[record.subject] if step.source is not record]
        self.steps[record.subject] = steps
        if self.heads[record.subject] == record.id:
            self.heads[record.subject] = steps[-1].after if steps else None

    def _name(self, frame: Frame, commit: Commit) -> None:
        for name in split_names(commit.volumes):
            self._named.add(frame.origin if name == HERE else name)

    def _step(self, subject: str, step: Step) -> None:
        steps = self.steps.get(subject)
        if steps is None or not 0 <= step.time <= moment.LATEST:
            step.move(subject)  # raises when it makes no sense
            steps = self.steps.setdefault(subject, [])
        self.heads[subject] = step.after
        steps.append(step)

    # -- questions

    @property
    def named(self) -> set[bytes]:
        """Every volume that a commit ever named, or that chunks were moved to."""
        self.settle()
        return self._named

    @property
    def noticed(self) -> list[Problem]:
        """Such problems as came up so far: nothing more is read for it."""
        return list(self._problems)

    @property
    def problems(self) -> list[Problem]:
        """What of the log cannot be read, or makes no sense."""
        self.settle()
        return self._problems

    def moves(self, subject: str) -> list[HeadMove]:
        """How a subject's head moved, oldest first."""
        return [step.move(subject) for step in self.steps.get(subject, ())]

    def next_time(self, clock: datetime) -> int:
        """The time of the next entry: never before the last one's. Raises BadInput at the end of
        time, where a wrong clock may have put an entry."""
        self.settle()
        time = max(moment.to_micros(clock), self.last_time + 1)
        moment.from_micros(time)
        return time

    def record(self, checkpoint: bytes) -> Record:
        found = self.records.get(checkpoint)
        if found is None:
            raise NotFound(
                f"there is no checkpoint {id_text(checkpoint)}",
                hint="it may have been pruned; `holdfast list` shows what there is",
            )
        return found

    def head(self, subject: str) -> Record | None:
        head = self.heads.get(subject)
        return self.records.get(head) if head else None

    def owns(self, subject: str, token: int) -> bool:
        """Whether the lease of that token is in force."""
        owner = self.owners.get(subject)
        return owner is not None and owner.token == token

    def check_right(self, subject: str, fence: int) -> None:
        """Raise unless whoever states this token may advance the subject; 0: states none."""
        owner = self.owners.get(subject)
        if fence and (owner is None or owner.token != fence):
            whose = f": {owner.name} has it now" if owner else ""
            raise LeaseLost(f"the lease of {subject} was lost{whose}")
        if owner is not None and not fence:
            raise Owned(subject, owner.name, owner.url)

    def check_free(self, subject: str) -> None:
        """Raise Conflict when a new subject cannot have this name."""
        if self.lines.get(subject):
            raise Conflict(f"{subject} exists already", hint="choose another name")

    def newest_first(self, subject: str | None = None, after: int = 0) -> list[Record]:
        """All checkpoints, or those of one subject, or of these the ones after an entry."""
        line = self.records if subject is None else self.lines.get(subject, {})
        count = _NEWS if after else len(line)
        while True:
            # A list of its own: another thread may take an entry in while one goes through it.
            found = list(islice(reversed(line.values()), count))
            if not after or len(found) < count or found[-1].frame.seq <= after:
                return [record for record in found if record.frame.seq > after]
            count *= _NEWS

    def all_records(self) -> list[Record]:
        """A list of its own: another thread may take an entry in while one goes through it."""
        return list(self.records.values())

    def volumes(self, record: Record) -> list[tuple[bytes, ...]]:
        """For each volume a commit names: where its chunks are now."""
        return [
            self.locate(record.frame.origin if name == HERE else name, record.frame.seq)
            for name in split_names(record.commit.volumes)
        ]

    def locate(self, volume: bytes, seq: int) -> tuple[bytes, ...]:
        """The volumes that now hold what `volume` held when entry `seq` named it."""
        for moved, to in self.relocations.get(volume, ()):
            if moved > seq:
                return tuple(name for target in to for name in self.locate(target, moved))
        return (volume,)

    def live_volumes(self) -> set[bytes]:
        """Every volume that some checkpoint needs."""
        return {
            name
            for record in self.all_records()
            for names in self.volumes(record)
            for name in names
        }

    def usable(self) -> set[bytes]:
        """The volumes that a commit may refer to."""
        return self.named - self.condemned.keys()

    def is_usable(self, volume: bytes, seq: int) -> bool:
        """Whether a commit may still refer to what stood in `volume` at entry `seq`."""
        moved = any(at > seq for at, _ in self.relocations.get(volume, ()))
        # What nothing names was left by a writer that never committed, and may be deleted.
        return volume in self.named and volume not in self.condemned and not moved

    def dependents(self, volumes: Iterable[bytes]) -> list[Record]:
        """The checkpoints that need one of these volumes."""
        wanted = set(volumes)
        return [
            record
            for record in self.all_records()
            if any(name in wanted for names in self.volumes(record) for name in names)
        ]


def _owner(entry: Own, seq: int) -> Owner:
    return Owner(
        subject=Subject.parse(entry.subject),
        name=entry.owner,
        url=entry.url,
        token=seq,
        since=moment.from_micros(entry.time),
        lasts=entry.lasts / 1000,
        beat=entry.beat,
    )
