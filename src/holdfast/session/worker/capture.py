"""Capturing the namespace: independent records, sources, and a report on every name.

Nothing here changes the session; a capture that fails leaves it as it was.
"""

from __future__ import annotations

import gc
from typing import NamedTuple

import msgspec

from holdfast.protocol.session_messages import ItemReport
from holdfast.session import layout
from holdfast.session.layout import DEFINITION, NAME, Definition, Record
from holdfast.session.worker import inventory, tiers
from holdfast.session.worker.cells import CellLog
from holdfast.session.worker.codes import CodeIndex
from holdfast.session.worker.definitions import Definitions
from holdfast.session.worker.grouping import shared_groups
from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.inventory import Inventory
from holdfast.session.worker.pickler import Attempt, Scope, Surroundings, pickle_record
from holdfast.session.worker.placeholder import Placeholder, describe
from holdfast.session.worker.proof import Living, failures
from holdfast.session.worker.reasons import reason_of, secret_texts
from holdfast.session.worker.runner import clean, type_name
from holdfast.session.worker.secrets import secret, suspect
from holdfast.session.worker.sources import Kept


class Captured(NamedTuple):
    """A capture, ready to be handed to the host."""

    parts: dict[str, bytes]
    items: tuple[ItemReport, ...]
    serialization_method: str


class Unit(NamedTuple):
    """One member of a record, with its value."""

    member: str
    value: object


class Capture:
    """One capture of a namespace."""

    def __init__(
        self,
        namespace: dict[str, object],
        cells: CellLog,
        codes: CodeIndex,
        definitions: Definitions,
        limit: int | None = None,
    ) -> None:
        self._namespace = namespace
        self._cells = cells
        self._found: Inventory = inventory.take(namespace, codes, definitions)
        known = secret_texts(namespace)
        self._around = Surroundings(namespace, codes, self._found.labels, limit, known)
        self._kept = Kept(cells)
        self._records: list[Record] = []
        self._items: dict[str, ItemReport] = {}
        self._tiers: set[str] = set()

    def run(self, environment: layout.Environment) -> Captured:
        """Make the records and the report."""
        collecting = gc.isenabled()
        gc.disable()  # a collection in the middle would run finalizers of the user's objects
        try:
            self._capture()
        finally:
            if collecting:
                gc.enable()
        method = layout.lowest(self._tiers)
        definitions = self._definitions()
        sources = layout.Sources(
            cells=self._kept.cells(), definitions=definitions, imports=self._found.imports
        )
        order = {name: index for index, name in enumerate(self._namespace)}
        items = tuple(
            sorted(self._items.values(), key=lambda item: order.get(item.name, len(order)))
        )
        parts = {
            "environment": layout.encode(_with_method(environment, method)),
            "sources": layout.encode(sources),
            "report": layout.encode(layout.ReportPart(items=items)),
            **_parts(self._records),
        }
        return Captured(parts, items, method)

    def _capture(self) -> None:
        for skipped in self._found.skipped:
            self._items[skipped.name] = skipped
        for entry in self._found.imports:
            for name in entry.names:
                self._item(name, "rebuilt", "source", f"import {entry.module}")
        units: list[Unit] = []
        for name in self._found.values:
            value = self._namespace[name]
            if issubclass(type(value), Placeholder):
                self._placeholder(name, value)  # type: ignore[arg-type]  # just looked at
            elif secret(name, value):
                self._secret(name)
            else:
                own = value is self._namespace  # `everything = globals()`
                units.append(Unit(NAME + name, Scope("__main__") if own else value))
        units += [Unit(DEFINITION + label, state) for label, state in self._found.states.items()]
        attempts: list[tuple[Unit, Attempt]] = []
        for unit in units:
            attempt = self._attempt((unit,))
            if isinstance(attempt, str):
                self._lower(unit, attempt)
            elif any(hole.identity == id(unit.value) for hole in attempt.pickler.holes):
                self._lower(unit, attempt.pickler.holes[-1].reason)
            else:
                attempts.append((unit, attempt))
        attempts = self._proven(attempts)
        for group in self._groups([attempt for _, attempt in attempts]):
            self._group([attempts[index] for index in group])

    def _proven(self, attempts: list[tuple[Unit, Attempt]]) -> list[tuple[Unit, Attempt]]:
        """Those that can be read back; the others go to a lower tier, with the reason."""
        unsure = [index for index, (_, attempt) in enumerate(attempts) if attempt.pickler.unsure]
        living = Living(self._namespace, self._around.codes, self._found.objects)
        known = self._around.known
        found = failures([attempts[index][1].data for index in unsure], living, known)
        reasons = {unsure[index]: reason for index, reason in found.items()}
        for index, reason in reasons.items():
            self._lower(attempts[index][0], f"it cannot be read back: {reason}")
        return [attempt for index, attempt in enumerate(attempts) if index not in reasons]

    def _groups(self, attempts: list[Attempt]) -> list[list[int]]:
        if len(attempts) < 2:
            return [[index] for index in range(len(attempts))]  # listing a memo takes its time
        memos = [attempt.pickler.memo.copy() for attempt in attempts]
        references = {obj for attempt in attempts for obj in attempt.pickler.references}
        return shared_groups(memos, references)

    def _group(self, members: list[tuple[Unit, Attempt]]) -> None:
        if len(members) == 1:
            self._record(members, members[0][1])
            return
        together = self._attempt(tuple(unit for unit, _ in members))
        if not isinstance(together, str):
            self._record(members, together)
            return
        # Together they are too large or too deep; apart they can still be kept.
        for unit, alone in members:
            self._record([(unit, alone)], alone, f"no longer shares with others: {together}")

    def _attempt(self, units: tuple[Unit, ...]) -> Attempt | str:
        """Pickle units into one record; a text says why that cannot be."""
        values = tuple(unit.value for unit in units)
        try:
            attempt = pickle_record(values, self._around)
            defined = any(unit.member.startswith(DEFINITION) for unit in units)
            hidden = self._found.hidden if defined else {}
            if hidden or attempt.suspect:
                attempt = pickle_record(values, self._around, hidden)
        except Interrupted:
            raise
        except BaseException as error:  # noqa: BLE001  # user code: any of it may fail in any way
            return reason_of(error, self._around.known)
        return attempt

    def _record(
        self, members: list[tuple[Unit, Attempt]], attempt: Attempt, note: str = ""
    ) -> None:
        record = Record(
            members=tuple(unit.member for unit, _ in members),
            tier="cloudpickle",
            data=attempt.data,
            portable=attempt.pickler.portable,
        )
        self._records.append(record)
        redacted = {place: self._kept.place(place) for place in sorted(attempt.pickler.places)}
        for unit, alone in members:
            # By itself each member shows what is its own and not its neighbour's.
            pickler = alone.pickler
            reasons = [*([note] if note else []), *pickler.notes]
            reasons += [f"left out a secret: {name}" for name in dict.fromkeys(pickler.secrets)]
            reasons += {redacted.get(place, ""): None for place in sorted(pickler.places)}
            holes = {f"{hole.type_name}: {hole.reason}": None for hole in pickler.holes}
            if holes:
                reasons.append("holds what cannot be saved: " + "; ".join(list(holes)[:3]))
            reasons = [reason for reason in reasons if reason]
            kind, _, name = unit.member.partition(":")
            if kind + ":" == DEFINITION:
                self._found.notes.setdefault(name, []).extend(reasons)
                continue
            self._tiers.add("cloudpickle")
            outcome = "placeholder" if holes else "rebuilt" if reasons else "exact"
            self._item(name, outcome, "cloudpickle", "; ".join(reasons), len(alone.data))

    def _lower(self, unit: Unit, reason: str) -> None:
        kind, _, name = unit.member.partition(":")
        if kind + ":" == DEFINITION:
            self._found.notes.setdefault(name, []).append(f"only its source is kept: {reason}")
            return
        try:
            record = tiers.lower_tier(unit.member, unit.value, reason, self._around.limit)
        except Interrupted:
            raise
        except BaseException:  # noqa: BLE001  # a subclass of `str` or `dict` is user code as well
            record = tiers.placeholder(unit.member, unit.value, reason)
        if suspect(record.data):
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
        self._item(name, outcome, record.tier, record.reason, len(record.data))

    def _placeholder(self, name: str, value: Placeholder) -> None:
        kind, reason, data, hidden = describe(value)
        if hidden is not None:
            self._secret(name)
            return
        record = Record(
            members=(NAME + name,), tier="placeholder", data=data, type_name=kind, reason=reason
        )
        self._records.append(record)
        self._tiers.add("placeholder")
        self._item(name, "placeholder", "placeholder", reason, len(data))

    def _secret(self, name: str) -> None:
        record = Record(
            members=(NAME + name,), tier="secret", type_name="str", reason="looks like a secret"
        )
        self._records.append(record)
        self._item(name, "skipped", "secret", "looks like a secret; give it again on restore")

    def _definitions(self) -> tuple[Definition, ...]:
        definitions: list[Definition] = []
        for definition in self._found.definitions:
            note = self._kept.definition(definition)
            notes = [*([note] if note else []), *self._found.notes.get(definition.label, [])]
            for name in definition.names:
                reason = "; ".join(["from its source", *notes])
                self._item(name, "rebuilt", "source", reason)
            definitions.append(definition)
        return tuple(definitions)

    def _item(
        self, name: str, outcome: str, tier: str, reason: str = "", size_bytes: int = 0
    ) -> None:
        self._items[name] = ItemReport(
            name=name,
            outcome=outcome,  # type: ignore[arg-type]  # one of the four, by construction
            reason=clean(reason),
            tier=tier,
            size_bytes=size_bytes,
        )


def _with_method(environment: layout.Environment, method: str) -> layout.Environment:
    return msgspec.structs.replace(environment, serialization_method=method)


def _parts(records: list[Record]) -> dict[str, bytes]:
    """Records as parts: small ones together, a large one by itself."""
    small: list[bytes] = []
    parts: dict[str, bytes] = {}
    for record in records:
        data = layout.encode_record(record)
        if len(data) < layout.SMALL:
            small.append(data)
            continue
        name = record.members[0].partition(":")[2]
        part = f"namespace/{name}" if name.isidentifier() and name.isascii() else ""
        if not part or part in parts or part == layout.SMALL_PART:
            part = f"namespace/large.{len(parts)}"
        parts[part] = data
    if small:
        parts[layout.SMALL_PART] = b"".join(small)
    return parts
