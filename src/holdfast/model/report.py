"""Reports: what an operation did with each item, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["exact", "rebuilt", "placeholder", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What became of one item of a capture or a restore."""

    name: str
    outcome: Outcome
    reason: str = ""
    tier: str = ""
    size_bytes: int = 0
    type_name: str = ""
    summary: str = ""  # how much of it there is: a shape, a length, a number
    secrets: tuple[str, ...] = ()  # names of those that were left out of it


class Items(tuple[Item, ...]):
    """The items of a report; called, their names with them, as a mapping's `items()` gives them."""

    __slots__ = ()

    def __call__(self) -> Iterator[tuple[str, Item]]:
        return ((item.name, item) for item in self)


_NO_ITEMS = Items()


@dataclass(frozen=True, slots=True)
class Report:
    """All items of a capture or a restore, in their order.

    It is read as a mapping from names to items is: `report["rows"]`, `"rows" in report`, `get`,
    `keys()`, `values()`, `items()`, `dict(report)`. A loop over it gives the items themselves.
    """

    items: Items = _NO_ITEMS

    def __post_init__(self) -> None:
        if type(self.items) is not Items:
            object.__setattr__(self, "items", Items(self.items))

    @classmethod
    def of(cls, items: Iterable[Item]) -> Report:
        return cls(Items(items))

    @property
    def complete(self) -> bool:
        """True when every item came through without a placeholder or an omission."""
        return all(item.outcome in ("exact", "rebuilt") for item in self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __str__(self) -> str:
        """One line an item, for people."""
        return "\n".join(
            f"{item.name}: {item.outcome}{f' ({item.reason})' if item.reason else ''}"
            for item in self.items
        )

    def __getitem__(self, name: str) -> Item:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.items or any(item.name == name for item in self.items)

    def get(self, name: str) -> Item | None:
        """The item of that name, or None."""
        return next((item for item in self.items if item.name == name), None)

    def keys(self) -> tuple[str, ...]:
        """The names."""
        return tuple(item.name for item in self.items)

    def values(self) -> tuple[Item, ...]:
        """The items."""
        return tuple(self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that `verify` found wrong: where, what, and which checkpoints suffer."""

    where: str
    what: str
    affects: tuple[str, ...] = ()
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of `store.verify`."""

    deep: bool
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    checkpoints: int = 0
    chunks: int = 0
    bytes_read: int = 0

    @property
    def ok(self) -> bool:
        return not self.problems
