"""What earlier captures made of values, where it is certain that they would make the same now.

Three kinds of values let one be certain. What cannot change (numbers, texts, tuples of them) is the
same as long as its name is bound to the very same object. Small lists and dicts of such data are
compared, many at once (`groups`). And the record of a large array says only its name, where its
memory is kept and how it is laid out, so equal layouts make equal records. All else is looked at
again.
"""

from __future__ import annotations

import pickle
from collections.abc import Container, Mapping
from itertools import islice
from typing import Any, NamedTuple

from holdfast.model.secrets import USUAL, Rule
from holdfast.protocol.session_messages import ItemReport
from holdfast.session import layout
from holdfast.session.layout import NAME, Record
from holdfast.session.worker.groups import SIZE, Group, look
from holdfast.session.worker.innocent import Innocent
from holdfast.session.worker.inspection import measure
from holdfast.session.worker.inventory import OWN
from holdfast.session.worker.plain import NUMBERS, PLAIN, containers, fixed
from holdfast.session.worker.secrets import suspect
from holdfast.session.worker.texts import clean, type_name

MOST = 1000  # layouts of arrays that are remembered

_KEPT = (list, dict, tuple)  # exactly these types, as just seen


class Settled(NamedTuple):
    """A variable that needs no second look: its value, its record as it is stored, its item."""

    value: object
    record: bytes
    item: ItemReport
    data: bytes = b""  # its pickle, if that is in the record
    inside: tuple[int, ...] = ()  # ids of the lists and dicts in it, which others may share
    uses: tuple[str, ...] = ()  # labels of the memory beside its record


class Earlier:
    """Kept from one capture of a session to the next."""

    def __init__(self, rule: Rule = USUAL) -> None:
        self.rule = rule
        self._settled: dict[str, Settled] = {}
        self._groups: list[Group] = []
        self.owners: dict[int, str] = {}  # of lists and dicts by id: the settled variables
        self.arrays: dict[tuple[object, ...], bytes] = {}  # pickles by layout
        # Records and items of variables by name and layout; they keep no array alive.
        self._named: dict[tuple[object, ...], tuple[bytes, ItemReport]] = {}
        self.innocent = Innocent(rule)

    def settle(
        self, names: Mapping[str, object], limit: int | None, named: Container[int] = ()
    ) -> dict[str, Settled]:
        """The variables that need no second look, in their order; and nothing else.

        No two of them share a list or a dict; what else shares one with them is for the capture to
        find. Objects whose ids are `named` have records of their own.
        """
        before, now = self._settled, dict[str, Settled]()
        groups = [group for group in self._groups if group.same(names)]
        same = {name for group in groups for name in group.names}
        for name, value in list(names.items()):
            known = before.get(name)
            if id(type(value)) not in PLAIN:
                continue
            if known is None or known.value is not value or (known.inside and name not in same):
                known = _settled(name, value, named, self.rule)
                if known is None:
                    continue
            if limit is None or known.item.size_bytes <= limit:
                now[name] = known
        self.owners = parted(now)
        self._settled = now
        self._groups = _grouped(groups, now)
        return now

    def pickled(self, key: tuple[object, ...], data: bytes) -> None:
        """Remember the pickle of an array with this layout."""
        if len(self.arrays) >= MOST:
            self.arrays.clear()
        self.arrays[key] = data

    def array(self, name: str, value: Any, label: str, form: tuple[object, ...]) -> Settled:
        """A variable that is a large array with this layout, of which the pickle is known."""
        key = (name, label, *form)
        found = self._named.get(key)
        if found is None:
            if len(self._named) >= MOST:
                self._named.clear()
            data = self.arrays[label, *form]
            record = Record(members=(NAME + name,), tier="cloudpickle", data=data, uses=(label,))
            item = _item(name, value, len(data) + value.nbytes)
            found = self._named[key] = layout.encode_record(record), item
        return Settled(value, *found, inside=(id(value),), uses=(label,))


def parted(settled: dict[str, Settled]) -> dict[int, str]:
    """Whose each list, dict and array is; variables that share one are settled no longer."""
    owners: dict[int, str] = {}
    sharing: set[str] = set()
    for name, each in settled.items():
        for identity in each.inside:
            owner = owners.setdefault(identity, name)
            if owner != name:
                sharing |= {owner, name}
    for name in sharing:
        del settled[name]
    return {i: name for i, name in owners.items() if name not in sharing} if sharing else owners


def _grouped(groups: list[Group], settled: Mapping[str, Settled]) -> list[Group]:
    """The groups of which all are settled still, and new ones of all that are in none."""
    kept = [group for group in groups if all(name in settled for name in group.names)]
    done = {name for group in kept for name in group.names}
    left = iter([
        (name, each.value)
        for name, each in settled.items()
        if each.inside and name not in done
    ])  # fmt: skip
    while some := dict(islice(left, SIZE)):
        # Another thread may have changed one since its record was made: a group has what was seen
        # now, and would take that record for good from then on.
        group = Group.of(some)
        if group is not None and all(_is_now(settled[name]) for name in some):
            kept.append(group)
    return kept


def _is_now(known: Settled) -> bool:
    """Whether a closer look would find the same."""
    seen = look((known.value,))
    if seen is None or seen[0] != known.data:
        return False
    found = {i for i, (_, obj) in seen[1].items() if type(obj) is list or type(obj) is dict}
    return found == set(known.inside)


def _settled(name: Any, value: object, named: Container[int], rule: Rule) -> Settled | None:
    """None for what the capture has to look at more closely."""
    inside: tuple[int, ...] = ()
    if not fixed(value):
        found = containers(value)
        # Sets can be referred to weakly: somebody would notice that they are kept alive.
        if not found or any(type(each) not in _KEPT for each in found.values()):
            return None
        inside = tuple(i for i, each in found.items() if type(each) is not tuple)
        if any(i in named for i in inside):
            return None
    if type(name) is not str or not name.isascii() or name in OWN or rule.secret(name, value):
        return None
    if name == "__annotations__":
        return None
    data = pickle.dumps((value,), 5)
    if len(data) >= layout.SMALL // 2 or (id(type(value)) not in NUMBERS and suspect(data, rule)):
        return None
    record = Record(members=(NAME + name,), tier="cloudpickle", data=data)
    return Settled(value, layout.encode_record(record), _item(name, value, len(data)), data, inside)


def _item(name: str, value: object, size: int) -> ItemReport:
    return ItemReport(
        name=name, outcome="exact", tier="cloudpickle", size_bytes=size,
        type_name=type_name(value), summary=clean(measure(value)),
    )  # fmt: skip
