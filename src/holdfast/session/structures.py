"""The parts of a checkpoint that people and `diff` look into; the rest is records."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.model.errors import Corrupt
from holdfast.session import layout
from holdfast.store.parts.trees import Plain

KINDS: dict[str, type[msgspec.Struct]] = {
    "environment": layout.Environment,
    "sources": layout.Sources,
    "report": layout.ReportPart,
}


class Structure(NamedTuple):
    """One of them, as the worker sent it, by its schema, and as plain data."""

    data: bytes
    value: msgspec.Struct
    plain: Plain


class Structures:
    """Reads them. What has the same bytes as the last time is the very same value, which the store
    need not compare with what it has."""

    def __init__(self) -> None:
        self._last: dict[str, Structure] = {}

    def read(self, parts: dict[str, bytes]) -> dict[str, Structure]:
        """Raises Corrupt when one is missing, or not what it should be."""
        missing = KINDS.keys() - parts.keys()
        if missing:
            raise Corrupt(f"the worker left out {', '.join(sorted(missing))}")
        self._last = {name: self._read(name, parts[name]) for name in KINDS}
        return self._last

    def _read(self, name: str, data: bytes) -> Structure:
        last = self._last.get(name)
        if last is not None and last.data == data:
            return last
        value = layout.decode(data, KINDS[name])
        return Structure(data, value, Plain(msgspec.msgpack.decode(layout.encode(value))))
