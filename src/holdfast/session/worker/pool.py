"""Objects that several records need: kept once, in a record of their own, named in the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from holdfast.session.layout import OBJECT, Record
from holdfast.session.worker.kinds.tensors import lasting_id
from holdfast.session.worker.pickler import Attempt, ReferencePickler
from holdfast.session.worker.sharing import changeable, connected, shared_ids
from holdfast.session.worker.surroundings import Surroundings
from holdfast.session.worker.units import Taken, record

# Pickles values with a table of what is only named, looking for secrets or not, laid flat or
# not; a text says why that cannot be.
Pickle = Callable[
    [tuple[object, ...], Mapping[int, str] | None, dict[int, str] | None, bool], Attempt | str
]


class Pool:
    """Makes records of units, so that what they share stays shared."""

    def __init__(self, around: Surroundings, named: Mapping[int, str], pickle: Pickle) -> None:
        self._around = around
        # Named wherever they are met; they have records of their own, or are in every process.
        self._named = dict(named)
        self._pickle = pickle
        self.apart: dict[str, str] = {}  # members that no longer share, and why

    def records(self, units: Sequence[Taken]) -> list[Record]:
        """The units' records, and those of what they share."""
        if not units:
            return []
        references = {identity for taken in units for identity in taken.found.references}
        candidates = shared_ids([taken.ids for taken in units]) | self._named.keys()
        hits = [taken.ids & candidates if taken.ids else taken.ids for taken in units]
        for index, taken in enumerate(units):
            if hits[index]:
                objects = taken.objects()
                hits[index] = {
                    identity
                    for identity in hits[index]
                    if identity in self._named or changeable(objects[identity], references)
                }
        busy = [index for index, found in enumerate(hits) if found]
        shared = [hits[index] - self._named.keys() for index in busy]
        made: dict[int, Record] = {}
        pooled: list[Record] = []
        for group in connected(shared):
            members = [units[busy[index]] for index in group]
            together = set().union(*(shared[index] for index in group))
            records = self._group(members, together)
            made |= zip((busy[index] for index in group), records, strict=False)
            pooled += records[len(group) :]
        # In the order of the units, since the segments of a container have one.
        return [made.get(i) or _alone(taken) for i, taken in enumerate(units)] + pooled

    def _group(self, members: list[Taken], shared: set[int]) -> list[Record]:
        """The members' records, and one more if there is something in the pool."""
        table: dict[int, str] = {}
        if len(members) > 1:  # one alone shares nothing
            held = [taken.objects() for taken in members]
            objects = {i: obj for each in held for i, obj in each.items() if i in shared}
            table = {i: self._around.kept.shared(lasting_id(obj)) for i, obj in objects.items()}
            # A tuple cannot change, but what is in it can: it is the same tuple everywhere.
            counted = Counter(
                identity
                for each in held
                for identity, obj in each.items()
                if type(obj) in (tuple, frozenset) and obj
            )
            table |= {i: self._around.kept.shared(i) for i, n in counted.items() if n > 1}
        made: list[Record] = []
        pooled: dict[int, object] = {}
        for taken in members:
            named = {**table, **self._named}
            again = self._pickle((taken.unit.value,), named, taken.hidden, taken.found.flat)
            if isinstance(again, str):
                return self._apart(members, again)
            assert isinstance(again.pickler, ReferencePickler)
            pooled |= {i: o for i, o in again.pickler.met.items() if i in table}
            made.append(record((taken.unit.member,), again.data, again.found, taken.unit.type_name))
        if not pooled:
            return made
        searching = any(taken.hidden is not None for taken in members)
        hidden = {i: n for taken in members for i, n in (taken.hidden or {}).items()}
        values = tuple(pooled.values())
        flat = any(taken.found.flat for taken in members)
        together = self._pickle(values, self._named, hidden if searching else None, flat)
        if isinstance(together, str):
            return self._apart(members, together)
        labels = tuple(OBJECT + table[identity] for identity in pooled)
        return [*made, record(labels, together.data, together.found)]

    def _apart(self, members: list[Taken], reason: str) -> list[Record]:
        """Together they are too large or too deep; apart they can still be kept."""
        for taken in members:
            self.apart[taken.unit.member] = f"no longer shares with others: {reason}"
        return [_alone(taken) for taken in members]


def _alone(taken: Taken) -> Record:
    return record((taken.unit.member,), taken.data, taken.found, taken.unit.type_name)
