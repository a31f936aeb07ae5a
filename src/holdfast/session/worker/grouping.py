"""Which values belong together: those that share an object that can change. Pure."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pathlib
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

# Two records may each hold such an object: nobody can tell one from its equal twin, or it
# is found again by its name. A tuple is only as changeable as what is inside it, which the
# memo lists by itself.
_UNCHANGING = {
    str, bytes, int, float, complex, bool, type(None), tuple, frozenset, range, slice,
    CodeType, ModuleType, BuiltinFunctionType,
    decimal.Decimal, fractions.Fraction, uuid.UUID, re.Pattern,
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone,
    pathlib.PosixPath, pathlib.PurePosixPath,
}  # fmt: skip


def changeable(obj: object, references: set[int]) -> bool:
    """Whether sharing this object can be noticed. `references` are ids pickled by reference."""
    kind = type(obj)
    if kind in _UNCHANGING or isinstance(obj, (type, enum.Enum)):
        return False
    if kind is FunctionType and id(obj) in references:
        return False
    # numpy has one object per plain dtype, in every array.
    return not (kind.__module__.startswith("numpy") and kind.__name__.endswith(("dtype", "DType")))


def shared_groups(memos: Sequence[Mapping[int, object]]) -> list[list[int]]:
    """Group the indices of memos (id -> object) that are connected by a common id.

    Groups keep the order of their first member.
    """
    parents = list(range(len(memos)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    owners: dict[int, int] = {}
    for index, memo in enumerate(memos):
        for identity in memo:
            owner = owners.setdefault(identity, index)
            if owner != index:
                first, second = sorted((root(owner), root(index)))
                parents[second] = first
    groups: dict[int, list[int]] = {}
    for index in range(len(memos)):
        groups.setdefault(root(index), []).append(index)
    return list(groups.values())


def memo_of(entries: Iterable[tuple[int, object]], references: set[int]) -> dict[int, object]:
    """The changeable objects of a pickler's memo, by id; it keeps them alive."""
    return {id(obj): obj for _, obj in entries if changeable(obj, references)}
