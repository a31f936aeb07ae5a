"""Recall: the values that were written last, kept in memory with the places of their chunks.

It makes writing them again cost what changed, and reading them cost no reading. It is an aid: what
is not recalled is written whole and read from the store.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.store.parts.blocks import PageTable
from holdfast.store.parts.trees import Twig

_LARGEST = 32 * 1024 * 1024  # bytes of plain encoding
_ALL = 64 * 1024 * 1024
_TABLES = 64  # of up to 100 KiB

Key = tuple[str, str]  # a subject and the name of a part


@dataclass(frozen=True, slots=True)
class Recollection:
    """A value as it was committed by entry `seq` of the log."""

    tree: Twig
    volumes: Mapping[bytes, bytes]  # by chunk, of the tree's and of some that it no longer has
    needs: frozenset[bytes]  # the volumes that the tree's own are in
    seq: int


class Tables:
    """The page tables that were written last, by the ids of their leaves: whoever patches a part
    begins with them. Nobody changes one that is here. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, PageTable] = OrderedDict()

    def get(self, leaf: bytes) -> PageTable | None:
        with self._lock:
            return self._kept.get(leaf)

    def keep(self, leaf: bytes, table: PageTable) -> None:
        with self._lock:
            self._kept.pop(leaf, None)
            self._kept[leaf] = table
            if len(self._kept) > _TABLES:
                self._kept.popitem(last=False)


class Recall:
    """The newest value of each of the parts that were written last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, Recollection] = OrderedDict()
        self._size = 0

    def last(self, key: Key) -> Recollection | None:
        """The value that was last written there."""
        with self._lock:
            return self._kept.get(key)

    def keep(self, key: Key, new: Recollection) -> None:
        with self._lock:
            self._drop(key)
            if new.tree.size > _LARGEST:
                return
            self._kept[key] = new
            self._size += new.tree.size
            while self._size > _ALL:
                self._drop(next(iter(self._kept)))

    def all(self) -> list[tuple[Key, Recollection]]:
        """Everything that is kept."""
        with self._lock:
            return list(self._kept.items())

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._size = 0

    def _drop(self, key: Key) -> None:
        old = self._kept.pop(key, None)
        if old is not None:
            self._size -= old.tree.size
