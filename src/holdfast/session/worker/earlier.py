"""What earlier captures made of values, where it is certain that they would make the same now.

Two kinds of values let one be certain. What cannot change (numbers, texts, tuples of them) is the
same as long as its name is bound to the very same object. And the record of a large array says
only where its memory is kept and how it is laid out, so equal layouts make equal records. All
else is looked at again.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.protocol.session_messages import ItemReport
from holdfast.session import layout
from holdfast.session.layout import NAME, Record
from holdfast.session.worker.inspection import measure
from holdfast.session.worker.inventory import OWN
from holdfast.session.worker.plain import fixed
from holdfast.session.worker.runner import clean, type_name
from holdfast.session.worker.secrets import secret, suspect

MOST = 1000  # layouts of arrays that are remembered


class Settled(NamedTuple):
    """A variable that needs no second look: its value, its record as it is stored, its item."""

    value: object
    record: bytes
    item: ItemReport


class Earlier:
    """Kept from one capture of a session to the next."""

    def __init__(self) -> None:
        self._settled: dict[str, Settled] = {}
        self.arrays: dict[tuple[object, ...], bytes] = {}  # pickles by layout

    def settle(self, names: Mapping[str, object], limit: int | None) -> dict[str, Settled]:
        """The variables whose values cannot change, in their order; and nothing else."""
        before, now = self._settled, dict[str, Settled]()
        for name, value in list(names.items()):
            known = before.get(name)
            if known is None or known.value is not value:
                if not fixed(value):
                    continue
                known = _settled(name, value)
                if known is None:
                    continue
            if limit is None or known.item.size_bytes <= limit:
                now[name] = known
        self._settled = now
        return now

    def pickled(self, key: tuple[object, ...], data: bytes) -> None:
        """Remember the pickle of an array with this layout."""
        if len(self.arrays) >= MOST:
            self.arrays.clear()
        self.arrays[key] = data


def _settled(name: Any, value: object) -> Settled | None:
    """None for what the capture has to look at more closely."""
    if type(name) is not str or not name.isascii() or name in OWN or secret(name, value):
        return None
    data = pickle.dumps((value,), 5)
    if len(data) >= layout.SMALL // 2 or suspect(data):
        return None
    record = Record(members=(NAME + name,), tier="cloudpickle", data=data)
    item = ItemReport(
        name=name, outcome="exact", tier="cloudpickle", size_bytes=len(data),
        type_name=type_name(value), summary=clean(measure(value)),
    )  # fmt: skip
    return Settled(value, layout.encode_record(record), item)
