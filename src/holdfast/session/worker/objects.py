"""Objects that several records need, loaded when the first of them asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.session.layout import OBJECT, SEGMENT, Record

if TYPE_CHECKING:
    from holdfast.session.worker.segments import Container

# The values of a record. Raises whatever reading it raises.
Load = Callable[[Record], tuple[object, ...]]


class Objects:
    """The pool and the large containers of a checkpoint, by label."""

    def __init__(self, records: Sequence[Record], load: Load) -> None:
        self._load = load
        self._pool: dict[str, Record] = {}
        self._segments: dict[str, list[Record]] = {}
        for record in records:
            for member in record.members:
                kind, _, label = member.partition(":")
                if kind + ":" == SEGMENT:
                    self._segments.setdefault(label, []).append(record)
                elif kind + ":" == OBJECT:
                    self._pool[label] = record
        self._loading: set[str] = set()  # labels of the pool's record that is being read
        self._waiting: list[str] = []  # containers that can be filled when it has been read
        self.made: dict[str, object] = {}

    def forget(self) -> None:
        """Read everything anew when it is asked for again."""
        self.made = {}
        self._loading.clear()
        self._waiting.clear()

    def get(self, label: str) -> object:
        """The object with that label. Raises LookupError, or what reading it raises."""
        if label in self.made:
            return self.made[label]
        if label in self._segments:
            return self._container(label)
        record = self._pool.get(label)
        if record is None or label in self._loading:
            raise LookupError(f"there is no object {label} in the checkpoint")
        self._read(record)
        return self.made[label]

    def _read(self, record: Record) -> None:
        labels = [member.removeprefix(OBJECT) for member in record.members]
        self._loading.update(labels)
        try:
            values = self._load(record)
        finally:
            self._loading.difference_update(labels)
        self.made.update(zip(labels, values, strict=True))
        while self._waiting and not self._loading:
            self._fill(self._waiting.pop())

    def _container(self, label: str) -> object:
        kind = self._segments[label][0].type_name
        made: Container = {} if kind == "dict" else []
        self.made[label] = made
        if self._loading and self._needs(label, self._loading):
            self._waiting.append(label)  # a cycle: what it holds is being read at this moment
        else:
            self._fill(label)
        return made

    def _fill(self, label: str) -> None:
        container = self.made[label]
        assert isinstance(container, (dict, list))
        for record in self._segments[label]:
            for value in self._load(record):
                if not isinstance(value, list):
                    raise ValueError("a segment does not hold what it says")
                fill(container, value)

    def _needs(self, label: str, wanted: set[str]) -> bool:
        """Whether reading a container asks for one of these, directly or through others."""
        seen: set[str] = set()
        waiting = [label]
        while waiting:
            each = waiting.pop()
            if each in wanted:
                return True
            if each in seen:
                continue
            seen.add(each)
            records = [*self._segments.get(each, ()), *filter(None, [self._pool.get(each)])]
            waiting += [used for record in records for used in record.uses]
        return False


def fill(container: Container, segment: list[object]) -> None:
    """The inverse of `segments.cut`."""
    if isinstance(container, list):
        container.extend(segment)
    else:
        container.update(segment)  # type: ignore[arg-type]  # pairs, as they were cut


def own_records(records: Sequence[Record]) -> list[Record]:
    """Those that are not read on demand."""
    return [r for r in records if not r.members[0].startswith((OBJECT, SEGMENT))]
