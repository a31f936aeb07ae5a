"""The index: which volume holds a chunk. Built from pack tables and log entries, never stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from holdfast.model.errors import Corrupt, NotFound
from holdfast.store.chunks import ID_SIZE, Location
from holdfast.store.packs import Rows

_MERGE_AT = 12  # that many small levels are merged into one

Prefixes = NDArray[np.uint64]
LoadRows = Callable[[bytes], Rows]


class _Level:
    """A sorted run of rows of several packs: first 8 bytes of each id, and where its row is."""

    def __init__(self, prefixes: Prefixes, packs: NDArray[np.int32], rows: NDArray[np.int32]):
        self.prefixes = prefixes
        self.packs = packs
        self.rows = rows

    @classmethod
    def merge(cls, levels: Iterable[_Level]) -> _Level:
        levels = list(levels)
        prefixes = np.concatenate([level.prefixes for level in levels])
        order = np.argsort(prefixes, kind="stable")
        packs = np.concatenate([level.packs for level in levels])[order]
        rows = np.concatenate([level.rows for level in levels])[order]
        return cls(prefixes[order], packs, rows)


class Index:
    """Finds chunks in the volumes it was told of. Thread-safe."""

    def __init__(self, load_rows: LoadRows) -> None:
        self._load_rows = load_rows
        self._lock = threading.RLock()
        self._levels: list[_Level] = []
        self._numbers: dict[bytes, int] = {}
        self._tables: list[tuple[bytes, Rows]] = []
        self._inline: dict[bytes, list[Location]] = {}
        self._damaged: set[bytes] = set()

    def add_inline(self, chunk: bytes, place: Location) -> None:
        """Remember a chunk that stands in the log."""
        with self._lock:
            self._inline.setdefault(chunk, []).append(place)

    def forget_inline(self, volume: bytes | None = None) -> None:
        """Forget what stood in one log segment, or in all of them."""
        with self._lock:
            kept: dict[bytes, list[Location]] = {}
            if volume is not None:
                for chunk, places in self._inline.items():
                    if left := [place for place in places if place.volume != volume]:
                        kept[chunk] = left
            self._inline = kept

    def add_packs(self, names: Collection[bytes]) -> None:
        """Load the tables of packs that are not known yet. One that cannot be read is left out:
        its chunks count as missing, and whoever needs them is told so."""
        with self._lock:
            for name in names:
                if name in self._numbers or name in self._damaged:
                    continue
                try:
                    rows = self._load_rows(name)
                except (Corrupt, NotFound):
                    self._damaged.add(name)
                    continue
                self._numbers[name] = len(self._tables)
                self._tables.append((name, rows))
                self._levels.append(self._level(rows, len(self._tables) - 1))
            if len(self._levels) > _MERGE_AT:
                self._levels = [_Level.merge(self._levels)]

    def forget_damage(self) -> None:
        """Try again to load what could not be read."""
        with self._lock:
            self._damaged.clear()

    def knows(self, name: bytes) -> bool:
        """Whether the pack's table was loaded."""
        return name in self._numbers

    def find(self, chunk: bytes) -> list[Location]:
        """Every place where the chunk is said to be."""
        with self._lock:
            found = list(self._inline.get(chunk, ()))
            prefix = np.uint64(int.from_bytes(chunk[:8], "big"))
            for level in self._levels:
                at = int(np.searchsorted(level.prefixes, prefix))
                while at < len(level.prefixes) and level.prefixes[at] == prefix:
                    name, rows = self._tables[level.packs[at]]
                    row = rows[level.rows[at]]
                    if row["id"].tobytes() == chunk:
                        found.append(_location(name, row))
                    at += 1
            return found

    def rows(self, volume: bytes) -> list[tuple[bytes, Location]]:
        """Every chunk that a volume is known to hold."""
        with self._lock:
            if (number := self._numbers.get(volume)) is not None:
                name, rows = self._tables[number]
                return [(row["id"].tobytes(), _location(name, row)) for row in rows]
            return [
                (chunk, place)
                for chunk, places in self._inline.items()
                for place in places
                if place.volume == volume
            ]

    @staticmethod
    def _level(rows: Rows, number: int) -> _Level:
        ids = np.frombuffer(rows["id"].tobytes(), dtype=">u8").reshape(-1, ID_SIZE // 8)
        prefixes = ids[:, 0].astype(np.uint64)
        count = len(rows)
        return _Level(
            prefixes, np.full(count, number, dtype=np.int32), np.arange(count, dtype=np.int32)
        )


def _location(name: bytes, row: np.void) -> Location:
    return Location(
        name, int(row["offset"]), int(row["stored"]), int(row["plain"]), int(row["codec"])
    )
