"""Pickling the units of a capture, each by itself: plain data at once, large containers in pieces,
and everything else as far as it can be read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.session.layout import NAME, SEGMENT
from holdfast.session.worker import segments, units
from holdfast.session.worker.earlier import Earlier, Settled
from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.kinds import arrays
from holdfast.session.worker.kinds.pairs import lonely
from holdfast.session.worker.pickler import Attempt, pickle_record
from holdfast.session.worker.plain import containers
from holdfast.session.worker.proof import Living, prove
from holdfast.session.worker.reasons import reason_of
from holdfast.session.worker.secrets import suspect, without
from holdfast.session.worker.surroundings import Surroundings
from holdfast.session.worker.units import Taken, Unit

_UNREAD = "nobody has tried to read it back: in a copy of the process that would not come to an end"


class Taking:
    """One after the other; what cannot be taken is handed to `lower`, with the reason."""

    def __init__(
        self,
        around: Surroundings,
        named: Mapping[int, str],
        earlier: Earlier,
        lower: Callable[[Unit, str], None],
    ) -> None:
        """`named` are objects by id that records only name."""
        self._around = around
        self._named = dict(named)
        self._earlier = earlier
        self._lower = lower
        self.large: dict[int, str] = {}  # large containers by id, and their labels
        self._containers: dict[str, object] = {}  # the same, by label
        self._holding: set[str] = set()  # members that have one inside, or globals
        self._failed: dict[str, str] = {}  # labels of those that cannot be kept, and why

    def settled(self, names: Iterable[str], values: Mapping[str, object]) -> dict[str, Settled]:
        """Those that are large arrays, each with its own memory: their layout says all."""
        found: dict[str, Settled] = {}
        if self._around.limit is None:
            for name in names:
                value = values[name]
                if arrays.is_array(type(value)) and (known := self._layout(value)) is not None:
                    found[name] = self._earlier.array(name, value, *known)
        return found

    def again(self, name: str, settled: Settled) -> list[Taken]:
        """A variable that was settled, and shares something with another one."""
        unit = Unit(NAME, name, settled.value)
        if not settled.uses:
            return [units.plain(unit, containers(settled.value) or {})]
        taken: list[Taken] = []
        if (array := self._array(unit)) is not None:
            taken.append(array)
        else:  # code that ran since has given it another layout
            self._take(unit, taken)
        return taken

    def taken(self, found: list[Unit]) -> list[Taken]:
        """All that can be pickled."""
        simple, others = self._told_apart(found)
        others += self._segments(others)
        return self._checked(simple, others)

    def kept(self, taken: list[Taken]) -> list[Taken]:
        """Those of them that can be read back, and that lack no part."""
        return self._whole(self._proven(taken))

    def paired(self, taken: list[Taken]) -> list[Taken]:
        """The same, without ends whose other end is in none of them."""
        while lost := lonely(end for each in taken for end in each.found.ends):
            for pair in lost:
                pair.reason = "its other end is not in a variable of the session"
            again: list[Taken] = []
            for each in taken:
                if any(pair in lost for pair, _ in each.found.ends):
                    self._take(each.unit, again)
                else:
                    again.append(each)
            taken = self.kept(again)
        return taken

    def attempt(
        self,
        values: tuple[object, ...],
        table: Mapping[int, str] | None,
        searching: bool,
        flat: bool = False,
    ) -> Attempt | str:
        """Pickle values into one record; a text says why that cannot be."""
        try:
            return pickle_record(values, self._around, table, searching, flat)
        except Interrupted:
            raise
        except BaseException as error:  # noqa: BLE001  # user code: any of it may fail in any way
            return reason_of(error, self._around.known)

    def prove(self, attempts: Sequence[Attempt], shared: Mapping[str, object]) -> str | None:
        """Why some of these cannot be read back, where they name shared objects by label."""
        proofs = [
            (each.data, tuple(each.found.buffers), each.found.flat)
            for each in attempts
            if each.found.unproven
        ]
        living = Living(self._around, self._containers | dict(shared)) if proofs else None
        failed = prove(proofs, living, self._around.known).failed if living is not None else {}
        return next(iter(failed.values()), None)

    def _give_up(self, unit: Unit, reason: str) -> None:
        if unit.kind == SEGMENT:
            self._failed[unit.name] = reason
        else:
            self._lower(unit, reason)

    def _segments(self, found: list[Unit]) -> list[Unit]:
        """The pieces of large dicts and lists, as units of their own."""
        made: list[Unit] = []
        for unit in found:
            found_in = segments.look(unit.value, self._around.namespace)
            if found_in.names or found_in.large:
                self._holding.add(unit.member)
            for container in found_in.large:
                if id(container) in self.large:
                    continue
                label = self.large[id(container)] = self._around.kept.shared(id(container))
                self._containers[label] = container
                kind = type(container).__name__
                made += [Unit(SEGMENT, label, piece, kind) for piece in segments.cut(container)]
        return made

    def _told_apart(self, found: list[Unit]) -> tuple[list[Taken], list[Unit]]:
        """Plain data, pickled at once, and everything else."""
        simple: list[Taken] = []
        others: list[Unit] = []
        for unit in found:
            inside = containers(unit.value)
            if inside is not None:
                simple.append(units.plain(unit, inside))
            elif (array := self._array(unit)) is not None:
                simple.append(array)
            else:
                others.append(unit)
        return simple, others

    def _array(self, unit: Unit) -> Taken | None:
        """A large array that owns its memory, and that more than one unit has."""
        known = self._layout(unit.value) if self._around.limit is None else None
        if known is None:
            return None
        label, form = known
        return units.array(unit, self._earlier.arrays[label, *form], label)

    def _layout(self, value: Any) -> tuple[str, tuple[object, ...]] | None:
        """The label of a large array's memory, and all else that its record says, if that is all
        there is to say: then its pickle is known afterwards."""
        try:
            form = arrays.form(value)
        except Interrupted:
            raise
        except BaseException:  # noqa: BLE001  # a class may say that it is numpy's array
            return None
        if form is None:
            return None
        label = self._around.buffer(arrays.location(value), value.nbytes, value)
        if (label, *form) not in self._earlier.arrays:
            attempt = self.attempt((value,), None, False)
            if isinstance(attempt, str) or attempt.suspect or [*attempt.found.used] != [label]:
                return None
            if arrays.form(value) != form:  # another thread has changed it since
                return None
            self._earlier.pickled((label, *form), attempt.data)
        return label, form

    def _checked(self, simple: list[Taken], others: list[Unit]) -> list[Taken]:
        """Each unit by itself; those that cannot be pickled go to a lower tier."""
        taken: list[Taken] = []
        limit = self._around.limit
        # One look at all of them is quicker than one at each.
        searching = self._around.innocent.suspect(b"".join([each.data for each in simple]))
        for each in simple:
            large = limit is not None and len(each.data) > limit
            if large or (searching and suspect(each.data, self._around.rule)):
                others.append(each.unit)
            else:
                taken.append(each)
        for unit in others:
            self._take(unit, taken)
        return taken

    def _take(self, unit: Unit, taken: list[Taken]) -> None:
        table = self._named | self.large if unit.member in self._holding else None
        searching = False
        attempt = self.attempt((unit.value,), table, searching)
        if not isinstance(attempt, str) and attempt.suspect:
            searching = True
            unit = self._without(unit)
            attempt = self.attempt((unit.value,), table, searching)
        if isinstance(attempt, str):
            self._give_up(unit, attempt)
        elif any(h.identity == id(unit.value) and not h.revives for h in attempt.found.holes):
            self._give_up(unit, attempt.found.holes[-1].reason)
        else:
            taken.append(units.taken(unit, attempt, searching))

    def _without(self, unit: Unit) -> Unit:
        """A unit without secrets where nothing but the unit tells their names."""
        if unit.kind == SEGMENT and unit.type_name == "dict":
            pairs: Any = unit.value
            keys = [key for key, _ in pairs]
            values = without(self._around.rule, keys, [value for _, value in pairs])
            return unit._replace(value=list(zip(keys, values, strict=True)))
        return unit

    def _proven(self, taken: list[Taken]) -> list[Taken]:
        """Those that can be read back; the others go to a lower tier, with the reason."""
        reasons = self._unproven(taken)
        if not reasons:
            return taken
        flat = {index: self._laid_flat(taken[index]) for index in reasons}
        again = {index: each for index, each in flat.items() if each is not None}
        still = self._unproven(list(again.values()))
        kept = {index: each for at, (index, each) in enumerate(again.items()) if at not in still}
        for index, reason in reasons.items():
            if index not in kept:
                self._give_up(taken[index].unit, f"it cannot be read back: {reason}")
        every = [kept.get(index, each) for index, each in enumerate(taken)]
        return [each for index, each in enumerate(every) if index not in reasons or index in kept]

    def _unproven(self, taken: list[Taken]) -> dict[int, str]:
        """Which of them cannot be read back, and why."""
        unsure = [index for index, each in enumerate(taken) if each.found.unproven]
        for index in unsure:
            met = taken[index].found
            if met.held and _UNREAD not in met.notes:
                met.notes.append(_UNREAD)
        unsure = [index for index in unsure if not taken[index].found.held]
        if not unsure:
            return {}
        living = Living(self._around, self._containers)
        proofs = [(taken[index].data, taken[index].found) for index in unsure]
        records = [(data, tuple(found.buffers), found.flat) for data, found in proofs]
        failed, unknown = prove(records, living, self._around.known)
        for index, reason in unknown.items():  # so it is not called exact
            if reason not in (notes := proofs[index][1].notes):
                notes.append(reason)
        return {unsure[index]: reason for index, reason in failed.items()}

    def _laid_flat(self, taken: Taken) -> Taken | None:
        """The same laid flat: then a set that holds its own owner is filled when all is there."""
        if taken.attempt is None or taken.found.flat:
            return None
        unit, table = taken.unit, self._named | self.large
        named = table if unit.member in self._holding else None
        attempt = self.attempt((unit.value,), named, taken.searching, True)
        return None if isinstance(attempt, str) else units.taken(unit, attempt, taken.searching)

    def _whole(self, taken: list[Taken]) -> list[Taken]:
        """Without what needs a container of which a segment could not be kept."""
        limit = self._around.limit
        sizes: dict[str, int] = {}
        for each in taken:
            if each.unit.kind == SEGMENT:
                sizes[each.unit.name] = sizes.get(each.unit.name, 0) + len(each.data)
        for label, size in sizes.items():
            if limit is not None and size > limit:
                self._failed[label] = f"larger than the limit of {limit} bytes for one item"
        if not self._failed:
            return taken
        kept: list[Taken] = []
        for each in taken:
            reasons = [self._failed[label] for label in each.found.used if label in self._failed]
            if each.unit.kind == SEGMENT:
                if each.unit.name not in self._failed:
                    kept.append(each)
            elif reasons:
                self._give_up(each.unit, reasons[0])
            else:
                kept.append(each)
        return kept
