"""The catalogue: the fold of the log. Pure: entries in, state out."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint, HeadMove
from holdfast.model.errors import Conflict, LeaseLost, NotFound, Owned
from holdfast.model.owner import Owner
from holdfast.model.report import Problem
from holdfast.model.subject import Subject
from holdfast.store.log.entries import (
    HERE,
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
    Verb,
    split_names,
)
from holdfast.store.log.frames import Frame


class Record(msgspec.Struct, gc=False):
    """A checkpoint in the catalogue: its entry, and what later entries said of it."""

    commit: Commit
    frame: Frame
    foreign: bool
    tags: dict[str, str]
    pinned: bool = False

    def checkpoint(self) -> Checkpoint:
        """What callers get to see."""
        commit = self.commit
        return Checkpoint(
            id=id_text(commit.id),
            subject=Subject.parse(commit.subject),
            parents=tuple(id_text(parent) for parent in commit.parents),
            reason=commit.reason,
            stage=commit.stage,
            time=moment.from_micros(commit.time),
            digest=commit.digest.hex(),
            size_bytes=commit.size,
            stored_bytes=commit.stored,
            part_count=commit.part_count,
            sequence=self.frame.seq,
            tags=dict(self.tags),
            pinned=self.pinned,
            rollback_of=id_text(commit.rollback_of) if commit.rollback_of else None,
            signer=(self.commit.maker or self.frame.key_id).hex(),
            foreign=self.foreign,
        )


class Step(msgspec.Struct, frozen=True, gc=False):
    """A head's move as the log says it. Logs are long and few ask, so it is not yet a value."""

    sequence: int
    time: int
    verb: Verb
    before: bytes | None
    after: bytes | None

    def move(self, subject: str) -> HeadMove:
        """What callers get to see."""
        return HeadMove(
            subject=Subject.parse(subject),
            sequence=self.sequence,
            time=moment.from_micros(self.time),
            verb=self.verb,
            before=id_text(self.before) if self.before else None,
            after=id_text(self.after) if self.after else None,
        )


@dataclass(slots=True)
class Catalogue:
    """Everything the log says, up to entry `seq`."""

    seq: int = 0
    last_time: int = 0
    last_drop: int = 0  # the entry that last dropped checkpoints
    records: dict[bytes, Record] = field(default_factory=dict)
    lines: dict[str, dict[bytes, Record]] = field(default_factory=dict)  # by subject
    heads: dict[str, bytes | None] = field(default_factory=dict)
    owners: dict[str, Owner] = field(default_factory=dict)
    steps: dict[str, list[Step]] = field(default_factory=dict)  # of each subject's head
    relocations: dict[bytes, list[tuple[int, tuple[bytes, ...]]]] = field(default_factory=dict)
    condemned: dict[bytes, int] = field(default_factory=dict)
    named: set[bytes] = field(default_factory=set)  # every volume that a commit ever named
    others: list[Frame] = field(default_factory=list)  # every entry that is not a commit
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what is odd and no problem

    def apply(self, frame: Frame, entry: Entry, *, foreign: bool) -> None:
        """Take the next entry in."""
        self.seq = max(self.seq, frame.seq)
        match entry:
            case Commit():
                self._commit(frame, entry, foreign)
            case Move():
                self.others.append(frame)
                step = Step(frame.seq, entry.time, entry.verb, entry.before, entry.after)
                self._step(entry.subject, step)
            case Moves():
                self.others.append(frame)
                for head in entry.heads:
                    step = Step(frame.seq, entry.time, entry.verb, head.before, head.after)
                    self._step(head.subject, step)
            case Label():
                self.others.append(frame)
                if record := self.records.get(entry.id):
                    record.tags = {
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
                        del self.lines[gone.commit.subject][checkpoint]
            case Relocate():
                self.others.append(frame)
                to = tuple(split_names(entry.to))
                self.relocations.setdefault(entry.volume, []).append((frame.seq, to))
                self.named.update(to)
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
        if not isinstance(entry, Commit):
            self.last_time = max(self.last_time, getattr(entry, "time", 0))

    def _commit(self, frame: Frame, commit: Commit, foreign: bool) -> None:
        record = Record(commit, frame, foreign, commit.tags)
        # First, because these raise when the entry makes no sense.
        if commit.verb == "import":
            record.checkpoint()
        elif commit.verb == "aside":
            record.checkpoint()
            self.last_time = max(self.last_time, commit.time)
        else:
            step = Step(frame.seq, commit.time, commit.verb, commit.before, commit.id)
            self._step(commit.subject, step)
            self.last_time = max(self.last_time, commit.time)
        if twice := self.records.get(commit.id):
            del self.lines[twice.commit.subject][commit.id]
        self.records[commit.id] = record
        self.lines.setdefault(commit.subject, {})[commit.id] = record
        for name in split_names(commit.volumes):
            self.named.add(frame.origin if name == HERE else name)

    def _step(self, subject: str, step: Step) -> None:
        steps = self.steps.get(subject)
        if steps is None or not 0 <= step.time <= moment.LATEST:
            step.move(subject)  # raises when it makes no sense
            steps = self.steps.setdefault(subject, [])
        self.heads[subject] = step.after
        steps.append(step)

    # -- questions

    def moves(self, subject: str) -> list[HeadMove]:
        """How a subject's head moved, oldest first."""
        return [step.move(subject) for step in self.steps.get(subject, ())]

    def next_time(self, clock: datetime) -> int:
        """The time of the next entry: never before the last one's. Raises BadInput at the end of
        time, where a wrong clock may have put an entry."""
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

    def newest_first(self, subject: str | None = None) -> Iterator[Record]:
        """All checkpoints, or those of one subject."""
        if subject is None:
            return reversed(self.all_records())
        return reversed(list(self.lines.get(subject, {}).values()))

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


def id_text(checkpoint: bytes) -> str:
    """An id as people write it."""
    text = checkpoint.hex()  # `str(uuid.UUID(...))` is ten times slower
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def id_bytes(text: str) -> bytes | None:
    """The inverse, or None when the text is no id."""
    try:
        found = uuid.UUID(text)
    except ValueError:
        return None
    return found.bytes if str(found) == text.lower() else None
