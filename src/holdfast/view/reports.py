"""The report that a capture leaves in its checkpoint: what became of each item, and why.

It is looked at, never trusted: what is not a report is shown as none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args

from holdfast.model.checkpoint import Manifest
from holdfast.model.report import Item, Outcome, Report

if TYPE_CHECKING:
    from holdfast.store import Store

PART = "report"


def has_report(manifest: Manifest) -> bool:
    part = manifest.part(PART)
    return part is not None and part.split == "structure"


def read_report(store: Store, manifest: Manifest, *, trust: bool = False) -> Report | None:
    """The report of a checkpoint, or None when it has none. Raises Denied or Corrupt."""
    if not has_report(manifest):
        return None
    return parse(store.value(manifest.checkpoint, PART, trust=trust))


def parse(value: object) -> Report | None:
    """A report out of the plain data that a checkpoint holds; None when it is something else."""
    items = value.get("items") if isinstance(value, dict) else None
    if not isinstance(items, list):
        return None
    found = [_item(each) for each in items]
    return Report.of(each for each in found if each) if all(found) else None


def _item(value: object) -> Item | None:
    if not isinstance(value, dict):
        return None
    name, outcome, size = value.get("name"), value.get("outcome"), value.get("size_bytes", 0)
    if not isinstance(name, str) or outcome not in get_args(Outcome) or not isinstance(size, int):
        return None
    return Item(
        name=name,
        outcome=cast(Outcome, outcome),
        reason=str(value.get("reason", "")),
        tier=str(value.get("tier", "")),
        size_bytes=size,
        type_name=str(value.get("type_name", "")),
        summary=str(value.get("summary", "")),
    )
