"""Small lists and dicts that are as they were, told for many at once.

Pickled again, they make the same bytes of the very same objects: then neither what they hold nor
what they share has changed. That is done in C, and no code of the user's runs meanwhile: whatever
is not plain data ends the look, as does anything that grew. Then each is looked at by itself.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.session.worker.interrupts import Interrupted

SIZE = 32  # variables; one that changed costs the others of its group a closer look


class Group(NamedTuple):
    """Variables that were looked at together, and what was seen. It keeps their objects alive, so
    that the ids stay theirs."""

    names: tuple[str, ...]
    values: tuple[object, ...]
    data: bytes
    objects: dict[int, Any]

    @classmethod
    def of(cls, variables: Mapping[str, object]) -> Group | None:
        """None when they cannot be compared later."""
        values = tuple(variables.values())
        seen = look(values)
        return None if seen is None else cls(tuple(variables), values, *seen)

    def same(self, names: Mapping[str, object]) -> bool:
        """Whether all of them are as they were."""
        for name, value in zip(self.names, self.values, strict=True):
            if names.get(name) is not value:
                return False
        seen = look(self.values, len(self.data))
        return seen is not None and seen[0] == self.data and seen[1].keys() == self.objects.keys()


class _OtherKind(Exception):
    """Something that is not plain data."""


class _Grown(Exception):
    """There is more than there was."""


class _Output:
    """Takes bytes, up to so many."""

    def __init__(self, room: int | None) -> None:
        self._room = room
        self._size = 0
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._room is not None and self._size > self._room:
            raise _Grown
        self.pieces.append(bytes(data))


class _Looker(pickle.Pickler):
    """Pickles plain data only: the interpreter asks for all else here."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is complex:
            return complex, (obj.real, obj.imag)
        if obj is complex:
            return NotImplemented
        raise _OtherKind


def look(values: Sequence[object], room: int | None = None) -> tuple[bytes, dict[int, Any]] | None:
    """Their bytes and, by id, the numbers of the objects in them and these; None for more than
    plain data, and for more of it than there is room for."""
    output = _Output(room)
    pickler = _Looker(output, 5)
    try:
        pickler.dump(values)
    except Interrupted:
        raise
    except BaseException:  # noqa: BLE001  # too deep, or another thread changed it: looked at again
        return None
    return b"".join(output.pieces), pickler.memo.copy()
