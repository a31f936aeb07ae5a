"""Objects that several records need: kept once, in a record of their own, named in the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from holdfast.session.layout import OBJECT, Record
from holdfast.session.worker.kinds.tensors import lasting_id
from holdfast.session.worker.pickler import Attempt, ReferencePickler
from holdfast.session.worker.sharing import changeable, connected, shared_ids
from holdfast.session.worker.surroundings import Surroundings
from holdfast.session.worker.units import Taken, record

# Pickles values with a table of what is only named, looking for secrets or not, laid flat or
# not; a text says why that cannot be.
Pickle = Callable[[tuple[object, ...], Mapping[int, str] | None, bool, bool], Attempt | str]
# Why some of these cannot be read back, given the shared objects by label; None when all can.
Prove = Callable[[Sequence[Attempt], Mapping[str, object]], str | None]


class Pool:
    """Makes records of units, so that what they share stays shared."""

    def __init__(
        self, around: Surroundings, named: Mapping[int, str], pickle: Pickle, prove: Prove
    ) -> None:
        self._around = around
        self._prove = prove
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
        """The members' records, and one more if there is something in the pool.

        Each member can be read back by itself, but one of them may spoil what it shares: that one
        is kept apart, so that it costs the others nothing.
        """
        made = self._together(members, shared)
        if not isinstance(made, str):
            return made
        kept: list[Taken] = []
        self._add(kept, members, shared)
        if len(kept) < 2:
            return self._apart(members, made)
        together = self._together(kept, shared)
        if isinstance(together, str):
            return self._apart(members, together)
        found = dict(zip((each.unit.member for each in kept), together, strict=False))
        alone = [each for each in members if each.unit.member not in found]
        found |= zip((each.unit.member for each in alone), self._apart(alone, made), strict=True)
        return [*(found[each.unit.member] for each in members), *together[len(kept) :]]

    def _add(self, kept: list[Taken], more: list[Taken], shared: set[int]) -> None:
        """Add to those kept all that can be kept together with them."""
        if not isinstance(self._together([*kept, *more], shared), str):
            kept += more
        elif len(more) > 1:
            half = len(more) // 2
            self._add(kept, more[:half], shared)
            self._add(kept, more[half:], shared)

    def _together(self, members: list[Taken], shared: set[int]) -> list[Record] | str:
        """The same records; a text says why they cannot be made, or not be read back."""
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
        attempts: list[Attempt] = []
        pooled: dict[int, object] = {}
        for taken in members:
            named = {**table, **self._named}
            again = self._pickle((taken.unit.value,), named, taken.searching, taken.found.flat)
            if isinstance(again, str):
                return again
            assert isinstance(again.pickler, ReferencePickler)
            pooled |= {i: o for i, o in again.pickler.met.items() if i in table}
            made.append(record((taken.unit.member,), again.data, again.found, taken.unit.type_name))
            attempts.append(again)
        if not pooled:
            return made
        searching = any(taken.searching for taken in members)
        labels = {table[identity]: value for identity, value in pooled.items()}
        # A class needs them while it is made: with its instances in one record it would wait for
        # that record, which waits for the class.
        first = {i: value for i, value in pooled.items() if type(value) is TypeVar}
        later = {i: value for i, value in pooled.items() if i not in first}
        named = self._named | {i: table[i] for i in first}
        groups: list[tuple[dict[int, object], dict[int, str]]] = [
            ({i: value}, self._named) for i, value in first.items()
        ]
        for group, names in [*groups, (later, named)] if later else groups:
            flat = any(taken.found.flat for taken in members)
            values = tuple(group.values())
            together = self._pickle(values, names, searching, flat)
            if isinstance(together, str):
                return together
            members_of = tuple(OBJECT + table[identity] for identity in group)
            made.append(record(members_of, together.data, together.found))
            attempts.append(together)
        reason = self._prove(attempts, labels)
        return made if reason is None else reason

    def _apart(self, members: list[Taken], reason: str) -> list[Record]:
        """Together they cannot be kept, or read back; apart they can."""
        for taken in members:
            self.apart[taken.unit.member] = f"no longer shares with others: {reason}"
        return [_alone(taken) for taken in members]


def _alone(taken: Taken) -> Record:
    return record((taken.unit.member,), taken.data, taken.found, taken.unit.type_name)
