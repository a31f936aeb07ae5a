"""Records: checkpoints as the catalogue has them. Logs are long and few ask for all of it, so an
entry is decoded when somebody wants more than its id and its subject."""

from __future__ import annotations

import msgspec

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint, HeadMove
from holdfast.model.errors import Corrupt
from holdfast.model.subject import Subject
from holdfast.store.log.entries import Commit, Move, decode_entry
from holdfast.store.log.frames import Frame


class Record(msgspec.Struct, gc=False):
    """A checkpoint in the catalogue: its entry, and what later entries said of it."""

    id: bytes
    subject: str
    frame: Frame
    foreign: bool
    header: bytes = b""  # the entry's bytes, not encrypted; empty when it came decoded
    decoded: Commit | None = None
    labels: dict[str, str] | None = None  # None: no later entry spoke of tags
    pinned: bool = False

    @property
    def commit(self) -> Commit:
        """What its entry says; raises Corrupt."""
        if self.decoded is None:
            entry = decode_entry(self.header)
            if not isinstance(entry, Commit):
                raise Corrupt("an entry is no commit, and begins as one")
            self.decoded = entry
        return self.decoded

    @property
    def tags(self) -> dict[str, str]:
        return self.commit.tags if self.labels is None else self.labels

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
            signer=(commit.maker or self.frame.key_id).hex(),
            foreign=self.foreign,
        )


class Step(msgspec.Struct, frozen=True, gc=False):
    """A head's move as the log says it: by a commit, or by itself."""

    sequence: int
    source: Record | Move

    @property
    def entry(self) -> Commit | Move:
        return self.source.commit if isinstance(self.source, Record) else self.source

    @property
    def time(self) -> int:
        return self.entry.time

    @property
    def before(self) -> bytes | None:
        return self.entry.before

    @property
    def after(self) -> bytes | None:
        return self.source.id if isinstance(self.source, Record) else self.source.after

    def move(self, subject: str) -> HeadMove:
        """What callers get to see; raises BadInput when it makes no sense."""
        entry, after = self.entry, self.after
        return HeadMove(
            subject=Subject.parse(subject),
            sequence=self.sequence,
            time=moment.from_micros(entry.time),
            verb=entry.verb,
            before=id_text(entry.before) if entry.before else None,
            after=id_text(after) if after else None,
        )


def id_text(checkpoint: bytes) -> str:
    """An id as people write it."""
    text = checkpoint.hex()  # `str(uuid.UUID(...))` is ten times slower
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def id_bytes(text: str) -> bytes | None:
    """The inverse, or None when the text is no id."""
    try:
        found = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return None
    return found if len(found) == 16 and id_text(found) == text.lower() else None
