"""The index: which volume holds a chunk. Built from pack tables and log entries, never stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.model.errors import Corrupt, NotFound
from holdfast.store.arrays import distinct, loaded, np
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import ID_SIZE, RAW, Location
from holdfast.store.chunks.packs import PAGE
from holdfast.store.chunks.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Prefixes = NDArray[np.uint64]

_FEW = 4
_SMALL = 1 << 15  # chunks that are looked up in a dict while numpy is not there
_LOOSE = 32  # tables that are searched one by one while numpy is not there
_SEARCHES = 500  # of that kind; who asks so often is served better with numpy
_RECENT = 64  # answers that are remembered: who looks at a chunk mostly reads it next


class Places(NamedTuple):
    """Where chunks are, as columns. `pack` is a number that `Index.name` understands."""

    pack: NDArray[np.int64]
    offset: NDArray[np.int64]
    stored: NDArray[np.int64]
    plain: NDArray[np.int64]
    codec: NDArray[np.int64]


class Body(msgspec.Struct, frozen=True, gc=False):
    """Chunks that stand one after the other in a volume of the log, from `offset` on."""

    volume: bytes
    offset: int
    ids: bytes
    sizes: Sequence[int]  # of each: stored, plain, codec

    def place(self, number: int) -> Location:
        """Where the chunk of that number is."""
        stored, plain, codec = self.sizes[3 * number : 3 * number + 3]
        at = self.offset + sum(self.sizes[: 3 * number : 3])
        return Location(self.volume, at, stored, plain, codec)


class _Level:
    """A sorted run of rows of several packs: first 8 bytes of each id, and where its row is."""

    def __init__(self, prefixes: Prefixes, packs: NDArray[np.int32], rows: NDArray[np.int32]):
        self.prefixes = prefixes
        self.packs = packs
        self.rows = rows

    @classmethod
    def of(cls, table: Table, number: int) -> _Level:
        packs = np.full(len(table), number, dtype=np.int32)
        return cls(table.ids[:, 0].astype(np.uint64), packs, np.arange(len(table), dtype=np.int32))

    def merged(self, other: _Level) -> _Level:
        prefixes = np.concatenate([self.prefixes, other.prefixes])
        order = np.argsort(prefixes, kind="stable")
        packs = np.concatenate([self.packs, other.packs])[order]
        rows = np.concatenate([self.rows, other.rows])[order]
        return _Level(prefixes[order], packs, rows)


class Index:
    """Finds chunks in the volumes it was told of. Thread-safe."""

    def __init__(self, load_table: Callable[[bytes], Table], distant: bool = False) -> None:
        """`distant`: each table takes a while to come."""
        self._load_table = load_table
        self._distant = distant
        self._lock = threading.RLock()
        self._levels: list[_Level] = []
        self._numbers: dict[bytes, int] = {}
        self._tables: list[Table] = []
        self._loose: list[int] = []  # tables that are in no level yet
        self._searches = 0
        # Of a chunk in the log: a body and its number there, then the next such pair. Most are
        # never asked for, so the place itself is made for whoever asks.
        self._inline: dict[bytes, tuple[Any, ...]] = {}
        self._bodies: list[Iterable[Body]] = []  # not yet in `_inline`
        self._damaged: set[bytes] = set()
        self._by_id: dict[bytes, Location] = {}  # chunks in packs, where they are few
        self._again: dict[bytes, list[Location]] = {}  # what is there more than once: the others
        self._recent: dict[bytes, tuple[Location, ...]] = {}

    def add_bodies(self, bodies: Iterable[Body], *, reset: bool = False) -> None:
        """Remember chunks that stand in the log; `reset` says that these are all there are. They
        are looked at when somebody asks for a chunk, and only once.

        What was moved out of the log is remembered until then: somebody may be reading it there.
        """
        with self._lock:
            if reset:
                self._inline, self._bodies = {}, []
            self._bodies.append(bodies)
            self._recent.clear()

    def _in_log(self) -> dict[bytes, tuple[Any, ...]]:
        """The chunks in the log. A long one is opened to be listed more often than to be read, so
        its bodies are looked into when somebody asks."""
        for body in chain.from_iterable(self._bodies):
            ids = body.ids
            for number in range(len(ids) // ID_SIZE):
                chunk = ids[number * ID_SIZE : (number + 1) * ID_SIZE]
                self._inline[chunk] = (*self._inline.get(chunk, ()), body, number)
        self._bodies = []
        return self._inline

    def add_packs(self, names: Collection[bytes]) -> None:
        """Load the tables of packs that are not known yet. One that cannot be read is left out:
        its chunks count as missing, and whoever needs them is told so."""
        with self._lock:
            unknown = [n for n in names if n not in self._numbers and n not in self._damaged]
            if not unknown:
                return
            self._recent.clear()
            self._by_id.clear()
            self._again.clear()
            # Where each answer takes a while, they are waited for together.
            ask = workers.fetching().map if self._distant and len(unknown) > 1 else map
            for name, table in zip(unknown, ask(self._table_or_none, unknown), strict=True):
                if table is None:
                    self._damaged.add(name)
                elif name not in self._numbers:
                    self._loose.append(len(self._tables))
                    self._numbers[name] = len(self._tables)
                    self._tables.append(table)

    def _table_or_none(self, name: bytes) -> Table | None:
        try:
            return self._load_table(name)
        except (Corrupt, NotFound):
            return None

    def _sorted(self) -> list[_Level]:
        """All tables, in few runs that are searched at once."""
        for number in self._loose:
            level = _Level.of(self._tables[number], number)
            # Levels grow by a factor, so that there are few to search and little is merged twice.
            while self._levels and len(self._levels[-1].prefixes) < 4 * len(level.prefixes):
                level = self._levels.pop().merged(level)
            self._levels.append(level)
        self._loose = []
        return self._levels

    def _one_by_one(self) -> bool:
        """Whether a chunk is found before numpy, which is not there, would be."""
        self._searches += 1
        return not loaded() and len(self._loose) <= _LOOSE and self._searches <= _SEARCHES

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
            found = self._recent.get(chunk)
            if found is None:
                if len(self._recent) >= _RECENT:
                    self._recent.clear()
                found = self._recent[chunk] = tuple(self._find(chunk))
            return [*found]

    def _find(self, chunk: bytes) -> Iterator[Location]:
        if (inline := self._in_log().get(chunk)) is not None:
            yield from _located(inline)
        if not self._tables:
            return
        if self._by_id:
            if (first := self._by_id.get(chunk)) is not None:
                yield first
                yield from self._again.get(chunk, ())
            return
        if self._one_by_one():
            yield from chain.from_iterable(table.find(chunk) for table in self._tables)
            return
        prefix = np.uint64(int.from_bytes(chunk[:8], "big"))
        for level in self._sorted():
            yield from self._matches(level, int(level.prefixes.searchsorted(prefix)), chunk)

    def find_many(self, chunks: list[bytes]) -> list[list[Location]]:
        """`find` for many at once, with one search a level."""
        with self._lock:
            if len(chunks) <= _FEW:
                return [self.find(chunk) for chunk in chunks]
            inline = self._in_log()
            found = [_located(inline.get(chunk, ())) for chunk in chunks]
            if self._tables:
                self._search(chunks, found)
            return found

    def _search(self, chunks: list[bytes], found: list[list[Location]]) -> None:
        """Add what is in packs."""
        ids = np.frombuffer(b"".join(chunks), dtype=">u8").reshape(-1, ID_SIZE // 8)
        wanted = ids[:, 0].astype(np.uint64)
        for level in self._sorted():
            at = level.prefixes.searchsorted(wanted)
            left = np.arange(len(chunks))
            # Rows of one prefix stand together: the same chunk in several packs, mostly.
            while len(left := left[at[left] < len(level.prefixes)]):
                left = left[level.prefixes[at[left]] == wanted[left]]
                for i, place in self._same(level, at[left], ids[left], left):
                    found[i].append(place)
                at[left] += 1

    def _same(
        self, level: _Level, at: NDArray[np.intp], ids: Prefixes, asked: NDArray[np.intp]
    ) -> Iterator[tuple[int, Location]]:
        """Of the rows at these positions those that are of these chunks, with who asked."""
        packs, rows = level.packs[at], level.rows[at]
        for number in distinct(packs).tolist():
            table = self._tables[number]
            mine = np.flatnonzero(packs == number)
            mine = mine[(table.ids[rows[mine]] == ids[mine]).all(axis=1)]
            yield from zip(asked[mine].tolist(), table.locations(rows[mine]), strict=True)

    def places(self, chunks: list[bytes]) -> Places:
        """One place for each of many chunks, as columns; -1 where none was found this quickly."""
        count = len(chunks)
        found = Places(*(np.full(count, -1, dtype=np.int64) for _ in range(5)))
        if not count:
            return found
        ids = np.frombuffer(b"".join(chunks), dtype=">u8").reshape(-1, ID_SIZE // 8)
        prefixes = ids[:, 0].astype(np.uint64)
        with self._lock:
            for level in self._sorted():
                at = level.prefixes.searchsorted(prefixes)
                at[at == len(level.prefixes)] = 0
                alike = np.flatnonzero((level.prefixes[at] == prefixes) & (found.pack == -1))
                packs = level.packs[at[alike]]
                for number in distinct(packs).tolist():
                    table = self._tables[number]
                    mine = alike[packs == number]
                    rows = level.rows[at[mine]]
                    same = (table.ids[rows] == ids[mine]).all(axis=1)
                    mine, rows = mine[same], rows[same]
                    found.pack[mine] = number
                    found.offset[mine] = table.column("offset")[rows]
                    found.stored[mine] = table.column("stored")[rows]
                    found.plain[mine] = table.column("plain")[rows]
                    found.codec[mine] = table.column("codec")[rows]
        return found

    def volumes(self, chunks: list[bytes]) -> list[bytes | None]:
        """One volume for each of many chunks; None where none was found this quickly."""
        with self._lock:
            inline, packs = self._in_log(), self.places(chunks).pack.tolist()
            names = {number: self.name(number) for number in set(packs) if number >= 0}
            return [
                inline[chunk][0].volume if chunk in inline else names.get(pack)
                for chunk, pack in zip(chunks, packs, strict=True)
            ]

    def located(self, chunks: list[bytes]) -> list[Location | None]:
        """One place in a pack for each of many chunks; None where none was found this quickly."""
        with self._lock:
            if not loaded() and sum(map(len, self._tables)) <= _SMALL:
                return [*map(self._few().get, chunks)]
            places = self.places(chunks)
            names = [table.name for table in self._tables]
            return [
                None if pack < 0 else Location(names[pack], *place)
                for pack, *place in zip(*(column.tolist() for column in places), strict=True)
            ]

    def _few(self) -> dict[bytes, Location]:
        if not self._by_id:
            for table in self._tables:
                for chunk, place in table.places():
                    if self._by_id.setdefault(chunk, place) is not place:
                        self._again.setdefault(chunk, []).append(place)
        return self._by_id

    def prefer_mappable(self, chunks: list[bytes], found: list[Location | None]) -> None:
        """Turn to raw copies on page boundaries where `located` came upon another one."""
        for i, place in enumerate(found):
            if place is None or place.codec != RAW or place.offset % PAGE:  # not `mappable`
                others = filter(mappable, self.find(chunks[i]))
                found[i] = next((p for p in others if p.volume in self._numbers), place)

    def has_all(self, chunks: list[bytes]) -> bool:
        """Whether each of these chunks is somewhere."""
        unsure = np.flatnonzero(self.places(chunks).pack < 0).tolist()
        return all(self.find(chunks[i]) for i in unsure)

    def name(self, pack: int) -> bytes:
        """The pack that `places` gave a number."""
        return self._tables[pack].name

    def _matches(self, level: _Level, at: int, chunk: bytes) -> Iterator[Location]:
        """The rows from `at` on that really are this chunk's."""
        prefix = int.from_bytes(chunk[:8], "big")
        while at < len(level.prefixes) and level.prefixes.item(at) == prefix:
            table, row = self._tables[level.packs.item(at)], level.rows.item(at)
            if table.id(row) == chunk:
                yield table.location(row)
            at += 1

    def rows(self, volume: bytes) -> list[tuple[bytes, Location]]:
        """Every chunk that a volume is known to hold."""
        with self._lock:
            if (number := self._numbers.get(volume)) is not None:
                return list(self._tables[number])
            return [
                (chunk, place)
                for chunk, places in self._in_log().items()
                for place in _located(places)
                if place.volume == volume
            ]


def mappable(place: Location) -> bool:
    """Whether the chunk lies in its volume as it is, on the page grid."""
    return place.codec == RAW and place.offset % PAGE == 0


def _located(pairs: tuple[Any, ...]) -> list[Location]:
    return [body.place(number) for body, number in zip(pairs[::2], pairs[1::2], strict=True)]
