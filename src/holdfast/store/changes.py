"""What the log says since one of its entries, for whoever keeps a picture of the store current."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from holdfast.model.checkpoint import Checkpoint, HeadMove
from holdfast.model.errors import Corrupt, Denied
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Catalogue, Record, id_text
from holdfast.store.log.entries import Drop, Entry, Label
from holdfast.store.log.frames import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """From entry `since` to entry `sequence`. When not `complete`, the log no longer tells all
    that happened in between, and everything has to be looked at anew."""

    since: int
    sequence: int
    complete: bool = True
    checkpoints: tuple[Checkpoint, ...] = ()  # new ones and relabelled ones, oldest first
    removed: tuple[str, ...] = ()  # ids
    moves: tuple[HeadMove, ...] = ()  # oldest first


def since(ledger: Ledger, entry: int) -> Changes:
    """What happened after an entry; nothing but the log is read."""
    now = ledger.refresh()
    if entry > now.seq or entry < now.base:
        return Changes(since=entry, sequence=now.seq, complete=False)
    touched: dict[bytes, None] = {record.id: None for record in _newer(now, entry)}
    removed: list[str] = []
    for frame in reversed(list(takewhile(lambda each: each.seq > entry, reversed(now.others)))):
        match _entry(ledger, frame):
            case Label(id=which):
                touched[which] = None
            case Drop(ids=ids):
                removed += map(id_text, ids)
    found = (now.records.get(which) for which in touched)
    return Changes(
        since=entry,
        sequence=now.seq,
        checkpoints=tuple(record.checkpoint() for record in found if record is not None),
        removed=tuple(removed),
        moves=tuple(
            step.move(subject)
            for subject, steps in list(now.steps.items())
            for step in reversed(list(takewhile(lambda each: each.sequence > entry, steps[::-1])))
        ),
    )


def _newer(now: Catalogue, entry: int) -> list[Record]:
    newest = takewhile(lambda record: record.frame.seq > entry, reversed(now.all_records()))
    return list(newest)[::-1]


def _entry(ledger: Ledger, frame: Frame) -> Entry | None:
    try:
        return ledger.entry_of(frame)
    except (Corrupt, Denied):
        return None  # a problem of the log, which `verify` tells of
