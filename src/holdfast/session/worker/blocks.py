"""Blocks: long arrays of texts, numbers and other values that cannot change.

A block is told by the addresses of its values. The worker holds the values of each block that it
knows, so an address stays the same value's, and an array with the very same addresses has the same
values. Where one address differs, all are looked at again. A block's label is a hash of its record:
a copy of the worker, which has the same seed, may meet it first, or alone, and calls it the same.
"""

from __future__ import annotations

import ctypes
import io
import os
import pickle
from collections.abc import Iterable
from typing import Any, NamedTuple

from holdfast.session import layout
from holdfast.session.worker.labels import Labels
from holdfast.session.worker.secrets import suspect

# `Any` below: numpy is the user's choice, so it is not imported for its types.

_FIXED = {str, bytes, int, float, complex, bool, type(None)}
_FEW = 64  # addresses that tell most blocks apart


class Sent(NamedTuple):
    """A block in a capture: which one, its label, and the size of its record."""

    identity: int
    label: str
    size: int


class Block:
    """The values of an array, in the order in which they lie in memory."""

    def __init__(self, array: Any) -> None:
        self._held = array.ravel(order="K").copy()
        self._addresses = _addresses(self._held)
        self._fits: bool | None = None  # None: nobody has looked
        # What a copy of the process makes is not mistaken for what came to lie at its address here.
        self.identity = int.from_bytes(os.urandom(8), "big")
        self.used = True  # since the last survey
        self.last = False  # whether it was before that
        self.label = ""  # known when its record was made, here or in a copy
        self.size = 0  # of its record
        self.sent: set[int] = set()  # in which captures

    def has(self, addresses: Any) -> bool:
        """Whether these are the values' addresses."""
        mine = self._addresses
        same = bool((mine[:_FEW] == addresses[:_FEW]).all())
        return same and bool((mine == addresses).all())

    def values(self) -> object:
        """A list of the values; or where few occur often, a list of those and their numbers."""
        import numpy

        _, first, numbers = numpy.unique(self._addresses, return_index=True, return_inverse=True)
        if 2 * len(first) > len(self._addresses):
            return self._held.tolist()
        order = first.argsort()  # by where each occurs first: addresses say nothing about values
        rank = numpy.empty(len(first), "<u4")
        rank[order] = numpy.arange(len(first))
        return self._held[first[order]].tolist(), rank[numbers].tobytes()

    def data(self, labels: Labels) -> bytes | None:
        """The pickle of its record, and the block has its label; None when some of its values can
        change, are secrets, or are too few bytes for a record of their own."""
        if self._fits is False:
            return None
        if self._fits is None and not _FIXED.issuperset(map(type, self._held.tolist())):
            self._fits = False
            return None
        file = io.BytesIO()
        pickler = pickle.Pickler(file, 5)
        pickler.fast = True  # what occurs often has a number; nothing else is worth remembering
        pickler.dump((self.values(),))
        data = file.getvalue()
        if self._fits is None:
            self._fits = len(data) >= layout.SMALL and not suspect(data)
        if not self._fits:
            return None
        self.label, self.size = labels.content(data), len(data)
        return data


# What was looked at in a capture: the array at an address, held so that nothing else comes to lie
# there, and its block.
Looked = dict[tuple[int, int], tuple[Any, Block]]


class Blocks:
    """The blocks of a session, from one capture to the next."""

    def __init__(self) -> None:
        self._known: dict[int, list[Block]] = {}  # by how many values they have
        self._told: dict[str, set[int]] = {}  # captures by the labels of what they have

    def survey(self, found: Iterable[Any]) -> Looked:
        """Before a capture: hold the values of these arrays, and forget what nobody uses."""
        before = [block for blocks in self._known.values() for block in blocks]
        for block in before:
            block.used, block.last = False, block.used
        looked: Looked = {}
        for array in found:
            looked[place(array)] = array, self.of(array)
        kept: dict[int, list[Block]] = {}
        for count, blocks in self._known.items():
            left = [block for block in blocks if block.used or block.last]
            if left:
                kept[count] = left
        self._known = kept
        return looked

    def of(self, array: Any) -> Block:
        """The block of an array in one piece."""
        same_count = self._known.setdefault(array.size, [])
        addresses = _addresses(array)
        for block in same_count:
            if block.has(addresses):
                block.used = True
                return block
        made = Block(array)
        same_count.append(made)
        return made

    def captured(self, request: int, sent: Iterable[Sent], base: int) -> None:
        """A capture has these; captures before `base` will not be asked for."""
        known = {block.identity: block for each in self._known.values() for block in each}
        for block in known.values():
            block.sent = {each for each in block.sent if each >= base}
        for identity, label, size in sent:
            if identity in known:
                block = known[identity]
                block.label, block.size = label, size
                block.sent |= {each for each in self._told.pop(label, ()) if each >= base}
                block.sent.add(request)

    def anew(self) -> None:
        """A capture that is to have everything relies on nothing that is known of values. What
        earlier captures were sent they have all the same: a label says what a record holds."""
        known = [block for blocks in self._known.values() for block in blocks]
        self._told = {block.label: block.sent for block in known if block.sent}
        self._known.clear()

    def forget(self) -> None:
        """The namespace is another one."""
        self._known.clear()
        self._told.clear()


def place(array: Any) -> tuple[int, int]:
    """Where the memory of an array in one piece is."""
    return array.__array_interface__["data"][0], array.nbytes


def _addresses(array: Any) -> Any:
    """What lies in the memory of an array of objects."""
    import numpy

    address, size = place(array)
    memory: Any = (ctypes.c_char * size).from_address(address)
    return numpy.frombuffer(memory, numpy.uintp)
