"""Units of a capture: members on their way to a record, and records on their way to parts."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.session import layout
from holdfast.session.layout import OBJECT, SEGMENT, Record
from holdfast.session.worker.findings import Findings
from holdfast.session.worker.pickler import Attempt
from holdfast.session.worker.sharing import UNCHANGING, changeable_ids


class Unit(NamedTuple):
    """One member of a record, with its value."""

    kind: str  # of the member: `layout.NAME` and the like
    name: str
    value: object
    type_name: str = ""  # of the container that a segment belongs to

    @property
    def member(self) -> str:
        return self.kind + self.name


class Taken(NamedTuple):
    """A unit that could be pickled by itself: the bytes, and the objects that are in them."""

    unit: Unit
    data: bytes
    found: Findings
    ids: set[int]  # of objects that may be shared
    attempt: Attempt | None = None  # None for plain data and arrays
    containers: dict[int, object] | None = None  # then; what can be shared
    searching: bool = False  # for secrets, which are left out

    def objects(self) -> dict[int, object]:
        """Every object in it by id."""
        if self.attempt is None:
            return self.containers or {}
        return {identity: obj for identity, (_, obj) in self.attempt.memo().items()}


_NOTHING = Findings()  # there is nothing to be found in plain data


_NONE: set[int] = set()


def plain(unit: Unit, containers: dict[int, object]) -> Taken:
    """Plain data as it is."""
    ids = (
        {i for i, obj in containers.items() if type(obj) not in UNCHANGING} if containers else _NONE
    )
    return Taken(unit, pickle.dumps((unit.value,), 5), _NOTHING, ids, containers=containers)


def array(unit: Unit, data: bytes, label: str) -> Taken:
    """A large array, whose memory is kept beside its record."""
    itself = {id(unit.value): unit.value}
    return Taken(unit, data, Findings(used={label: None}), set(itself), containers=itself)


def taken(unit: Unit, attempt: Attempt, searching: bool) -> Taken:
    """What a pickler made of a unit."""
    ids = changeable_ids(attempt.memo())
    return Taken(unit, attempt.data, attempt.found, ids, attempt, searching=searching)


def record(members: tuple[str, ...], data: bytes, found: Findings, type_name: str = "") -> Record:
    """The record of what a pickler made."""
    return Record(
        members=members,
        tier="cloudpickle",
        data=data,
        portable=found.portable,
        type_name=type_name,
        buffers=tuple(found.buffers),
        flat=found.flat,
        uses=tuple(found.used),
    )


def parts(encoded: Iterable[bytes], records: Iterable[Record]) -> dict[str, bytes]:
    """Records as parts: small ones together, a large one, or a container's segments, alone.

    Some are `encoded` already; they are small.
    """
    small = list(encoded)
    together: dict[str, list[bytes]] = {_SMALL: small} if small else {}
    for each in records:
        data = layout.encode_record(each)
        part = _part_of(each.members[0], len(data))
        if part in together and not each.members[0].startswith(SEGMENT) and part != _SMALL:
            part = f"namespace/large.{len(together)}"
        together.setdefault(part, []).append(data)
    return {part: b"".join(pieces) for part, pieces in together.items()}


def block(label: str, data: bytes) -> bytes:
    """The record of an array's values, as a part."""
    return layout.encode_record(record((OBJECT + label,), data, _NOTHING))


def shared_part(label: str) -> str:
    """The part of a large object that several records, or captures, need."""
    return f"namespace/shared.{label}"


_SMALL = layout.SMALL_PART


def _part_of(member: str, size: int) -> str:
    kind, _, name = member.partition(":")
    if kind + ":" == SEGMENT:
        return f"namespace/segments.{name}"
    if size < layout.SMALL:
        return _SMALL
    if kind + ":" == OBJECT:
        return shared_part(name)
    part = f"namespace/{name}"
    fits = name.isidentifier() and name.isascii() and len(name) <= 190
    return part if fits and part != _SMALL else "namespace/large"
