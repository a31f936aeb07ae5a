"""A session's checkpoints in the store: which parts go in, and how they come out again."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.model.checkpoint import Checkpoint, Split
from holdfast.model.errors import BadInput, Conflict, Corrupt, NotFound
from holdfast.model.report import Item, Report
from holdfast.model.subject import Subject
from holdfast.protocol.session_messages import AheadMessage, ItemReport
from holdfast.session import layout
from holdfast.session.ahead import Ahead, Begun
from holdfast.session.captured import Captured
from holdfast.session.memory import Memories, Memory
from holdfast.session.structures import KINDS, Structures

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.draft import Draft
    from holdfast.store.leases import Lease
    from holdfast.store.parts.layouts import Layouts

# Libraries whose import does nothing but take its time.
_LIBRARIES = {
    *sys.stdlib_module_names, "matplotlib", "numpy", "pandas", "polars", "pyarrow", "scipy",
    "sklearn", "torch",
}  # fmt: skip
_LARGE = 1 << 20  # bytes: records of this size are not sent, but mapped
_RECORDS = re.compile(r"namespace/[A-Za-z0-9_.]{1,200}")
_SETTING = re.compile(r"namespace/(environment|large[.0-9]*)")
_MEMORY = re.compile(r"buffers/[a-z0-9]{1,40}")


class Stored(NamedTuple):
    """A checkpoint on its way into a worker."""

    parts: dict[str, bytes]
    memory: Layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCheckpoint:
    """A checkpoint of a session, with what its capture reported."""

    checkpoint: Checkpoint
    size_bytes: int
    serialization_method: str
    items: tuple[ItemReport, ...]
    pause_ms: float
    environment: layout.Environment
    saved_to_disk: bool = True

    def __repr__(self) -> str:
        outcomes = Counter(item.outcome for item in self.items)
        names = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        where = "" if self.saved_to_disk else ", in memory"
        return (
            f"<SessionCheckpoint {self.short} of {self.subject} ({self.reason}): "
            f"{names or 'no names'}, {self.size_bytes} bytes{where}>"
        )

    @property
    def report(self) -> Report:
        """What the capture did with each name."""
        return report_of(self.items)

    @property
    def id(self) -> str:
        return self.checkpoint.id

    @property
    def short(self) -> str:
        return self.checkpoint.short

    @property
    def subject(self) -> Subject:
        return self.checkpoint.subject

    @property
    def parents(self) -> tuple[str, ...]:
        return self.checkpoint.parents

    @property
    def reason(self) -> str:
        return self.checkpoint.reason

    @property
    def stage(self) -> str | None:
        return self.checkpoint.stage

    @property
    def time(self) -> datetime:
        return self.checkpoint.time

    @property
    def format_version(self) -> int:
        return self.environment.format

    @property
    def python_version(self) -> str:
        return self.environment.python

    @property
    def execution_count(self) -> int:
        """How many cells the session had run."""
        return self.environment.execution_count


Reference = SessionCheckpoint | Checkpoint | str | Path


def id_of(reference: object) -> str:
    """The id of a checkpoint that a caller gave. Raises BadInput for what is none."""
    if isinstance(reference, (SessionCheckpoint, Checkpoint)):
        return reference.id
    raise BadInput(
        f"a checkpoint was asked for, not {type(reference).__name__}",
        hint="give a checkpoint, its id, a short id, a tag, or `session/name~1`",
    )


def report_of(items: tuple[ItemReport, ...]) -> Report:
    """A worker's items in the words of all levels."""
    return Report.of(
        Item(
            name=item.name,
            outcome=item.outcome,
            reason=item.reason,
            tier=item.tier,
            size_bytes=item.size_bytes,
            type_name=item.type_name,
            summary=item.summary,
            secrets=item.secrets,
        )
        for item in items
    )


def go_on(begun: Begun, told: AheadMessage, memory: Memories, bases: Mapping[int, str]) -> None:
    """Go on with memory that came ahead of its capture. Raises HoldfastError, and then what was
    begun is given up."""
    try:
        for name, each in memory.items():
            _put_memory(begun.draft, name, each, bases)
    except BaseException:
        begun.draft.discard()
        raise
    begun.told.update((message.name, message) for message in told.memory)


def write(
    store: Store,
    subject: Subject,
    captured: Captured,
    *,
    parents: Sequence[str | None],
    reason: str,
    stage: str | None,
    on_disk: bool,
    new: bool = False,
    aside: bool = False,
    lease: Lease | None = None,
    bases: Mapping[int, str] | None = None,
    ahead: Ahead | None = None,
    structures: Structures | None = None,
) -> SessionCheckpoint:
    """Commit a capture on top of the first of `parents` that is there; `bases` are checkpoints
    that have the memory which it did not bring, by the requests that it knows them by. What was
    begun `ahead` is gone on with if it fits; `structures` know those of the last one.

    Raises Corrupt when the worker's parts are not what they should be, LeaseLost, and with `new`
    Conflict when the subject is taken.
    """
    parts, created = captured.parts, captured.created
    found = (structures or Structures()).read(parts)
    draft_on = partial(
        store.draft, subject, reason=reason, stage=stage, new=new, aside=aside, lease=lease
    )
    begun = None if ahead is None else ahead.begun(captured, parents[0])
    with _on_top_of(parents, draft_on) if begun is None else begun.draft as draft:
        for name, data in sorted(parts.items()):
            if name in found:
                draft.put(name, found[name].plain, split="structure")
                continue
            if not _RECORDS.fullmatch(name):
                raise Corrupt(f"the worker sent a part that a session does not have: {name!r}")
            split: Split = "whole" if name == layout.SMALL_PART else "content"
            draft.put(name, data, split=split)
        kept = 0
        for name, request in captured.kept.items():
            if not _RECORDS.fullmatch(name):
                raise Corrupt(f"the worker kept a part that a session does not have: {name!r}")
            kept += draft.keep(name, of=_base(bases or {}, request))
        for name, memory in captured.memory.items():
            if begun is None or name not in begun.told:
                _put_memory(draft, name, memory, bases or {})
        checkpoint = draft.commit()
    report, environment = found["report"].value, found["environment"].value
    assert isinstance(report, layout.ReportPart)
    assert isinstance(environment, layout.Environment)
    return SessionCheckpoint(
        checkpoint=checkpoint,
        size_bytes=captured.size + kept,
        serialization_method=created.serialization_method,
        items=report.items,
        pause_ms=created.pause_ms,
        environment=environment,
        saved_to_disk=on_disk,
    )


def _put_memory(draft: Draft, name: str, memory: Memory, bases: Mapping[int, str]) -> None:
    if not _MEMORY.fullmatch(name):
        raise Corrupt(f"the worker sent memory that a session does not have: {name!r}")
    if not memory.base:
        draft.put(name, memory.whole(), split="segment", skew=memory.skew)
        return
    base = _base(bases, memory.base)
    if memory.stretches:
        draft.patch(name, memory.stretches, of=base)
    else:
        draft.keep(name, of=base)


def _base(bases: Mapping[int, str], request: int) -> str:
    base = bases.get(request)
    if base is None:
        raise Corrupt("the worker refers to a checkpoint that it was not told of")
    return base


def _on_top_of(parents: Sequence[str | None], begin: Callable[[str | None], Draft]) -> Draft:
    for parent in parents:
        try:
            return begin(parent)
        except NotFound:
            continue  # it was deleted since the session made it
    return begin(None)


def check_free(store: Store, subject: Subject, hint: str) -> None:
    """Raise Conflict when a subject has checkpoints."""
    if store.list(subject, limit=1):
        raise Conflict(f"{subject} exists already", hint=hint)


def read(
    store: Store,
    reference: Checkpoint | str,
    trust: bool = False,
    tell: Callable[[tuple[str, ...]], object] = lambda modules: None,
) -> Stored:
    """A checkpoint as a worker takes it. All of it is verified, memory while it is in use.

    `tell` is told early which libraries it needs.
    """
    manifest = store.show(reference)
    parts: dict[str, bytes] = {}
    sizes = {part.name: part.size for part in manifest.parts}
    names = sizes.keys()
    if sizes.get(layout.SMALL_PART, _LARGE) < _LARGE:
        parts[layout.SMALL_PART] = store.read(reference, layout.SMALL_PART, trust=trust)
    for name in [name for name in KINDS if name in names]:
        value = store.value(reference, name, trust=trust)
        try:
            found = msgspec.convert(value, type=KINDS[name])
        except msgspec.ValidationError as error:
            raise Corrupt(f"{name} is not a session's: {error}") from None
        if isinstance(found, layout.Sources) and not _imports_may_differ(sizes, parts):
            tell(_first_needed(found))
        parts[name] = layout.encode(found)
    if "environment" not in parts or "sources" not in parts:
        raise BadInput(f"{manifest.checkpoint.short} is not a checkpoint of a session")
    memory = store.lay_out(reference, large=_LARGE, trust=trust)
    for name in names - parts.keys() - memory.keys():
        parts[name] = store.read(reference, name, trust=trust)
    return Stored(parts, memory)


def _imports_may_differ(sizes: Mapping[str, int], parts: Mapping[str, bytes]) -> bool:
    """Whether the session has set what an import may need: then it waits for the restore. In doubt,
    it has; a text may look like that, and much of it would have a part of its own."""
    if sizes.get(layout.SMALL_PART, 0) >= _LARGE or any(map(_SETTING.fullmatch, sizes)):
        return True
    small = parts.get(layout.SMALL_PART, b"")
    return any(f"{layout.STATE}{name}".encode() in small for name in layout.BEFORE_IMPORTS)


def _first_needed(sources: layout.Sources) -> tuple[str, ...]:
    """The libraries that a restore imports first, up to one that is not well known: its code might
    do anything, and comes when all that was before it is there."""
    modules = (entry.module for entry in sources.imports)
    return tuple(takewhile(lambda module: module.partition(".")[0] in _LIBRARIES, modules))
