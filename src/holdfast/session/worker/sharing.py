"""Which objects more than one record needs, and which records that connects. Pure."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pathlib
import re
import uuid
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, CodeType

from holdfast.session.worker.texts import type_module

# Two records may each hold such an object: nobody can tell one from its equal twin, or it
# is found again by its name. A tuple is only as changeable as what is inside it, which the
# memo lists by itself.
UNCHANGING = frozenset({
    str, bytes, int, float, complex, bool, type(None), tuple, frozenset, range, slice,
    CodeType, BuiltinFunctionType,
    decimal.Decimal, fractions.Fraction, uuid.UUID, re.Pattern,
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone,
    pathlib.PosixPath, pathlib.PurePosixPath,
})  # fmt: skip


def changeable(obj: object, references: set[int]) -> bool:
    """Whether sharing this object can be noticed. `references` are ids pickled by reference."""
    kind = type(obj)
    if kind in UNCHANGING or issubclass(kind, enum.Enum):
        return False
    if id(obj) in references:
        return False
    # numpy has one object per plain dtype, in every array.
    numpy = type_module(kind).startswith("numpy")
    return not (numpy and kind.__name__.endswith(("dtype", "DType")))


def shared_ids(records: Sequence[set[int]]) -> set[int]:
    """Ids that more than one record has."""
    if len(set[int]().union(*records)) == sum(map(len, records)):
        return set()  # nothing is shared: told in half the time
    seen: set[int] = set()
    twice: set[int] = set()
    for ids in records:
        twice |= seen & ids
        seen |= ids
    return twice


def connected(records: Sequence[set[int]]) -> list[list[int]]:
    """Group the indices of records that have an id in common, directly or through others.

    Groups keep the order of their first member.
    """
    parents = list(range(len(records)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    owners: dict[int, int] = {}
    for index, ids in enumerate(records):
        for identity in ids:
            owner = owners.setdefault(identity, index)
            if owner != index:
                first, second = sorted((root(owner), root(index)))
                parents[second] = first
    groups: dict[int, list[int]] = {}
    for index in range(len(records)):
        groups.setdefault(root(index), []).append(index)
    return list(groups.values())


# What a pickler met: id -> (number, object). It keeps the objects alive, so ids stay theirs.
Memo = Mapping[int, tuple[int, object]]


def changeable_ids(memo: Memo) -> set[int]:
    """Ids of a memo, without those that the type alone rules out."""
    return {identity for identity, (_, obj) in memo.items() if type(obj) not in UNCHANGING}
