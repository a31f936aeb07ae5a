"""The report under way: one item for each name, the last word counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.protocol.session_messages import ItemReport
from holdfast.session import layout
from holdfast.session.layout import Record
from holdfast.session.worker.placeholder import Placeholder, describe
from holdfast.session.worker.texts import clean, type_name


class Items:
    """What became of each name so far."""

    def __init__(self) -> None:
        self._items: dict[str, ItemReport] = {}

    def __getitem__(self, name: str) -> ItemReport:
        return self._items[name]

    def put(
        self,
        name: str,
        outcome: str,
        tier: str,
        reason: str = "",
        size: int = 0,
        secrets: Iterable[str] = (),
    ) -> None:
        """Say what became of a name; `secrets` are the names of those that it lost."""
        self._items[name] = ItemReport(
            name=name,
            outcome=outcome,  # type: ignore[arg-type]  # one of the four, by construction
            reason=clean(reason) if reason else "",
            tier=tier,
            size_bytes=size,
            secrets=tuple(dict.fromkeys(map(clean, secrets))),
        )

    def add(self, item: ItemReport) -> None:
        """Take an item as it is."""
        self._items[item.name] = item

    def describe(self, names: Mapping[str, object]) -> None:
        """Say of each what it is and how much of it, unless it was left out."""
        from holdfast.session.worker.inspection import measure  # a restore describes nothing

        for name, item in self._items.items():
            if item.outcome != "skipped" and name in names:
                value = names[name]
                gone = type(value) is Placeholder
                kind = describe(value)[0] if gone else type_name(value)  # type: ignore[arg-type]
                what = "" if gone else clean(measure(value))
                self._items[name] = msgspec.structs.replace(item, type_name=kind, summary=what)

    def all(self) -> Iterable[ItemReport]:
        return self._items.values()

    def read(
        self, name: str, record: Record, before: ItemReport | None, problems: list[str], python: str
    ) -> None:
        """Say what became of a variable whose record was read.

        `before` is what its capture said, `problems` what was missing now, and `python` the
        version that pickled it, if that is another one.
        """
        size, tier = len(record.data), record.tier
        if before is not None and before.reason.startswith(layout.MISSING):
            before = None  # if it is still missing, that is among the problems
        if tier == "cloudpickle" and before is not None and before.outcome == "placeholder":
            problems = [before.reason, *problems]
        if tier == "placeholder":
            self.put(name, "placeholder", tier, record.reason, size)
        elif problems:
            self.put(name, "placeholder", tier, "; ".join(problems), size)
        elif tier == "source":
            self.put(name, "rebuilt", tier, f"import {str(record.data, 'utf-8')}")
        elif tier != "cloudpickle":
            self.put(name, "rebuilt", tier, record.reason, size)
        elif python:
            self.put(name, "rebuilt", tier, f"pickled by Python {python}", size)
        elif before is not None and before.outcome == "rebuilt":
            self.put(name, "rebuilt", tier, before.reason, size)
        else:
            self.put(name, "exact", tier, "", size)
