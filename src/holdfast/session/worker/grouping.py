"""Which values belong together: those that share an object that can change. Pure."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pathlib
import re
import uuid
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

from holdfast.session.worker.runner import type_module

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
    if kind in _UNCHANGING or issubclass(kind, (type, enum.Enum)):
        return False
    if kind is FunctionType and id(obj) in references:
        return False
    # numpy has one object per plain dtype, in every array.
    numpy = type_module(kind).startswith("numpy")
    return not (numpy and kind.__name__.endswith(("dtype", "DType")))


# What a pickler met: id -> (number, object). It keeps the objects alive, so ids stay theirs.
Memo = Mapping[int, tuple[int, object]]


def shared_ids(memos: Sequence[Memo], references: set[int]) -> set[int]:
    """Ids of changeable objects that more than one memo has."""
    seen: set[int] = set()
    twice: dict[int, object] = {}
    for memo in memos:
        for identity in seen & memo.keys():
            twice[identity] = memo[identity][1]
        seen.update(memo)
    return {identity for identity, obj in twice.items() if changeable(obj, references)}


def shared_groups(memos: Sequence[Memo], references: set[int]) -> list[list[int]]:
    """Group the indices of memos that are connected by changeable objects they share.

    Groups keep the order of their first member.
    """
    parents = list(range(len(memos)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    shared = shared_ids(memos, references)
    owners: dict[int, int] = {}
    for index, memo in enumerate(memos):
        for identity in shared & memo.keys():
            owner = owners.setdefault(identity, index)
            if owner != index:
                first, second = sorted((root(owner), root(index)))
                parents[second] = first
    groups: dict[int, list[int]] = {}
    for index in range(len(memos)):
        groups.setdefault(root(index), []).append(index)
    return list(groups.values())
