"""Capturing the namespace: independent records, sources, and a report on every name.

Nothing here changes the session; a capture that fails leaves it as it was.
"""

from __future__ import annotations

import builtins
import gc
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.model.secrets import USUAL, Rule, how_to_give
from holdfast.session import layout
from holdfast.session.layout import DEFINITION, NAME, PATCH, STATE, Definition, Record
from holdfast.session.worker import budget, inventory, randomness, tiers, units
from holdfast.session.worker.account import accounts
from holdfast.session.worker.blocks import Blocks, Sent
from holdfast.session.worker.captured import Captured
from holdfast.session.worker.cells import CellLog
from holdfast.session.worker.codes import CodeIndex
from holdfast.session.worker.definitions import Definitions
from holdfast.session.worker.earlier import Earlier, parted
from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.inventory import Inventory
from holdfast.session.worker.items import Items
from holdfast.session.worker.kinds import catching
from holdfast.session.worker.kinds.functions import Scope
from holdfast.session.worker.labels import Labels
from holdfast.session.worker.memory.tracker import Tracker
from holdfast.session.worker.placeholder import Placeholder, describe
from holdfast.session.worker.pool import Pool
from holdfast.session.worker.reasons import secret_texts
from holdfast.session.worker.secrets import suspect
from holdfast.session.worker.sources import Kept, note
from holdfast.session.worker.surroundings import Surroundings
from holdfast.session.worker.taking import Taking
from holdfast.session.worker.texts import type_name
from holdfast.session.worker.units import Taken, Unit, shared_part

_LOST = "its source is kept, but could not be executed"


class Capture:
    """One capture of a namespace."""

    def __init__(
        self,
        namespace: dict[str, object],
        cells: CellLog,
        codes: CodeIndex,
        definitions: Definitions,
        limit: int | None = None,
        labels: Labels | None = None,
        most: int | None = None,
        tracker: Tracker | None = None,
        names: Mapping[str, object] | None = None,
        threads: int = 0,
        earlier: Earlier | None = None,
        blocks: Blocks | None = None,
        objects: Iterable[Any] = (),
        held: frozenset[str] = frozenset(),
        at: memoryview | None = None,
        rule: Rule = USUAL,
    ) -> None:
        """`limit` is for one item, `most` for all of it. Raises CheckpointTooLarge.

        `names` are those to keep, if some of the namespace belong to whoever lent it; `threads`
        run beside this one where the process cannot tell. `earlier` is what captures before this
        one found out; `objects` are the arrays of many objects that are easily found. `held` are
        types that a copy of the process stood still at; which type it is at is written to `at`.
        `rule` says what is a secret.
        """
        self._namespace = namespace
        self._all = namespace if names is None else names
        budget.check_ahead(self._all, most, limit)
        self._most = most
        self._rule = rule
        self._earlier = earlier or Earlier(rule)
        self._named = {id(namespace): layout.GLOBALS, id(builtins.__dict__): layout.BUILTINS}
        self._settled = self._earlier.settle(self._all, limit, self._named)
        self._owners = self._earlier.owners
        settled = self._settled.keys()
        self._names = {name: value for name, value in self._all.items() if name not in settled}
        self._found: Inventory = inventory.take(namespace, codes, definitions, self._names, rule)
        self._patches = definitions.patches.found(self._all)
        self._left = definitions.patches.left(namespace)
        around, self._unseen = (
            definitions.circumstances.found() if definitions.circumstances else ({}, {})
        )
        self._beside = randomness.states(definitions.imports) | around
        kept = labels or Labels()
        kept.begin()
        blocks = blocks or Blocks()
        self._around = Surroundings(
            namespace,
            codes,
            self._found.labels,
            self._found.objects,
            kept,
            limit,
            known=secret_texts(namespace, rule),
            rule=rule,
            tracker=tracker or Tracker.off(),
            threads=threads,
            blocks=blocks,
            looked=blocks.survey(objects),
            snapshots=self._found.snapshots,
            innocent=self._earlier.innocent,
            held=held,
            at=at or memoryview(bytearray(8)).cast("Q"),
        )
        self._kept = Kept(cells, rule)
        self._records: list[Record] = []
        self._items = Items()
        self._lacking: dict[str, list[str]] = {}  # secrets, by label of the definition without them
        self._tiers: set[str] = set()

    def kinds(self) -> Iterable[type]:
        """The types that it met, but for those that need no pickler of ours."""
        return self._around.families

    def catch(self) -> None:
        """Look at what a copy of the process would see change, before it is made."""
        for fd, look in catching.ends():
            self._around.pairs.catch(fd, look)

    def run(self, environment: layout.Environment, apart: bool = False) -> Captured:
        """Make the records and the report; `apart` in a copy of the process.

        Raises CheckpointTooLarge.
        """
        self._around.apart = apart
        if apart:
            self._around.tracker.apart()
        collecting = gc.isenabled()
        gc.disable()  # a collection in the middle would run finalizers of the user's objects
        try:
            self._capture()
            if self._around.ran or self._around.met:
                self._around.tracker.look_again()
        finally:
            if collecting:
                gc.enable()
        method = layout.lowest(self._tiers)
        definitions = self._definitions()
        sources = layout.Sources(
            cells=self._kept.cells(),
            definitions=definitions,
            imports=self._found.imports,
            left_out=self._kept.left_out(),
        )
        self._items.describe(self._names)
        for settled in self._settled.values():
            self._items.add(settled.item)
        order = {name: index for index, name in enumerate(self._all)}
        items = tuple(sorted(self._items.all(), key=lambda item: order.get(item.name, len(order))))
        environment = msgspec.structs.replace(environment, serialization_method=method)
        parts: dict[str, bytes] = {
            "environment": layout.encode(environment),
            "sources": layout.encode(sources),
            "report": layout.encode(layout.ReportPart(items=items)),
            **units.parts((each.record for each in self._settled.values()), self._records),
        }
        used = {label for record in self._records for label in record.uses}
        used.update(label for each in self._settled.values() for label in each.uses)
        sent = [
            Sent(block.identity, label, block.size)
            for label, block in self._around.values.items()
            if label in used
        ]
        encoded = self._around.encoded
        fresh = [each.label for each in sent if each.label in encoded]
        parts |= {shared_part(label): units.block(label, encoded.pop(label)) for label in fresh}
        base = self._around.tracker.base
        kept = {shared_part(each.label): base for each in sent if each.label not in fresh}
        labels = [label for label in self._around.buffers if label in used]
        memory = {layout.BUFFERS + label: self._around.image(label) for label in labels}
        captured = Captured(parts, memory, method, sent, kept)
        budget.check(captured.size, {item.name: item.size_bytes for item in items}, self._most)
        return captured

    def _capture(self) -> None:
        for skipped in self._found.skipped:
            self._items.add(skipped)
        for name, reason in (self._unseen | self._left).items():
            self._items.put(STATE + name, "skipped", "", reason)
        self._imports()
        taking = Taking(self._around, self._named, self._earlier, self._lower)
        self._settle(taking)
        taken = taking.taken(self._units())
        taken = taking.paired(taking.kept(taken + self._touched(taken, taking)))
        pool = Pool(self._around, self._named | taking.large, taking.attempt, taking.prove)
        self._records += pool.records(taken)
        self._report(taken, pool.apart)

    def _settle(self, taking: Taking) -> None:
        """Large arrays need no closer look either, if each is one variable's own."""
        found = taking.settled(self._found.values, self._names)
        self._owners = self._owners | parted(found)
        self._settled = self._settled | found

    def _imports(self) -> None:
        for entry in self._found.imports:
            changed = self._patches.get(entry.module, {})
            names = ", ".join(sorted({*changed.get("set", ()), *changed.get("delete", ())}))
            reason = f"import {entry.module}" + (f"; changed since: {names}" if names else "")
            for name in entry.names:
                self._items.put(name, "rebuilt", "source", reason)

    def _units(self) -> list[Unit]:
        """Everything that becomes a record, but for what needs no pickle at all."""
        found: list[Unit] = []
        for name in self._found.values:
            if name in self._settled:
                continue
            value = self._names[name]
            if type(value) is Placeholder:
                self._placeholder(name, value)
            elif self._rule.secret(name, value):
                self._secret(name, type(value) is bytes)
            else:
                if self._rule.kept(name):
                    self._around.spared[id(value)] = value
                own = value is self._namespace  # `everything = globals()`
                found.append(Unit(NAME, name, Scope("__main__") if own else value))
        found += [Unit(DEFINITION, label, state) for label, state in self._found.states.items()]
        found += [Unit(PATCH, module, changed) for module, changed in self._patches.items()]
        found += [Unit(STATE, library, state) for library, state in self._beside.items()]
        return found

    def _touched(self, taken: list[Taken], taking: Taking) -> list[Taken]:
        """What was settled, but shares a list, a dict or an array with something that was not."""
        shared = {i for each in taken for i in self._owners.keys() & each.ids}
        if not shared:
            return []
        names = {self._owners[identity] for identity in shared}
        found = {name: each for name, each in self._settled.items() if name in names}
        self._settled = {n: each for n, each in self._settled.items() if n not in names}
        self._names |= {name: each.value for name, each in found.items()}
        return [unit for name, each in found.items() for unit in taking.again(name, each)]

    def _report(self, taken: list[Taken], apart: dict[str, str]) -> None:
        self._tiers.add("cloudpickle")
        places = {place for each in taken for place in each.found.places}
        redacted = {place: self._kept.place(place) for place in sorted(places)}
        for each in accounts(taken, apart, redacted, self._around.places):
            unit, reason = each.unit, "; ".join(each.reasons)
            if unit.kind == DEFINITION:
                self._found.notes.setdefault(unit.name, []).extend(each.reasons)
                self._lacking.setdefault(unit.name, []).extend(each.secrets)
            elif unit.kind == NAME or each.outcome == "placeholder" or each.secrets:
                name = unit.name if unit.kind == NAME else unit.member
                self._items.put(name, each.outcome, "cloudpickle", reason, each.size, each.secrets)

    def _lower(self, unit: Unit, reason: str) -> None:
        if unit.kind == DEFINITION:
            self._found.notes.setdefault(unit.name, []).append(f"only its source is kept: {reason}")
            return
        if unit.kind != NAME:
            self._items.put(unit.member, "skipped", "", reason)
            return
        try:
            record = tiers.lower_tier(unit.member, unit.value, reason, self._around.limit)
        except Interrupted:
            raise
        except BaseException:  # noqa: BLE001  # a subclass of `str` or `dict` is user code as well
            record = tiers.placeholder(unit.member, unit.value, reason)
        if suspect(bytes(record.data), self._rule):
            # The lower tiers cannot leave out one entry of many.
            record = Record(
                members=(unit.member,),
                tier="placeholder",
                type_name=type_name(unit.value),
                reason="holds what looks like a secret",
            )
        self._records.append(record)
        self._tiers.add(record.tier)
        outcome = "placeholder" if record.tier == "placeholder" else "rebuilt"
        self._items.put(unit.name, outcome, record.tier, record.reason, len(record.data))

    def _placeholder(self, name: str, value: Placeholder) -> None:
        kind, reason, data, hidden = describe(value)
        if hidden is not None:
            self._secret(name, kind == "bytes", hidden)
            return
        record = Record(
            members=(NAME + name,), tier="placeholder", data=data, type_name=kind, reason=reason
        )
        self._records.append(record)
        self._tiers.add("placeholder")
        self._items.put(name, "placeholder", "placeholder", reason, len(data))

    def _secret(self, name: str, binary: bool, called: str = "") -> None:
        kind = "bytes" if binary else "str"
        reason = f"looks like a secret; {how_to_give(called or name)}"
        data = called.encode() if called != name else b""  # what it is to be given as
        record = Record(
            members=(NAME + name,), tier="secret", data=data, type_name=kind, reason=reason
        )
        self._records.append(record)
        self._items.put(name, "skipped", "secret", reason, secrets=(called or name,))

    def _definitions(self) -> tuple[Definition, ...]:
        definitions: list[Definition] = []
        for definition in self._found.definitions:
            names = self._kept.definition(definition)
            notes = [note(names)] if names else []
            notes += self._found.notes.get(definition.label, [])
            lost = definition.label in self._found.lost
            names += tuple(self._lacking.get(definition.label, ()))
            for name in definition.names or ([DEFINITION + definition.name] if names else []):
                reason = "; ".join([_LOST if lost else "from its source", *notes])
                outcome = "placeholder" if lost else "rebuilt"
                self._items.put(name, outcome, "source", reason, secrets=names)
            definitions.append(definition)
        return tuple(definitions)
