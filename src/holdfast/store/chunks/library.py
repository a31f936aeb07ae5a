"""The library: finds a chunk, reads it, and never returns a wrong byte."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from holdfast.model.errors import Corrupt, HoldfastError, NotFound
from holdfast.store.backends.contract import Backend
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import RAW, Buffer, Location, chunk_id, decode, open_chunk
from holdfast.store.chunks.index import Index
from holdfast.store.chunks.packs import read_table
from holdfast.store.chunks.table import Table
from holdfast.store.chunks.verified import VerifiedChunk
from holdfast.store.cipher import PLAIN, Cipher

_CACHE = 64 * 1024 * 1024
_GAP = 16 * 1024  # bytes; a read of its own takes about as long
_SPAN = 1024 * 1024


class Span(NamedTuple):
    """Chunks that lie close together in one volume."""

    volume: bytes
    start: int
    end: int
    chunks: list[tuple[Location, bytes]]


def spans_of(placed: Iterable[tuple[Location, bytes]]) -> list[Span]:
    """The fewest reads that are worth it: gaps are read over where that is quicker."""
    spans: list[Span] = []
    for place, chunk in sorted(placed, key=lambda each: (each[0].volume, each[0].offset)):
        end = place.offset + place.stored
        last = spans[-1] if spans else None
        if (
            last is not None
            and place.volume == last.volume
            and place.offset - last.end <= _GAP
            and end - last.start <= _SPAN
        ):
            last.chunks.append((place, chunk))
            spans[-1] = last._replace(end=max(end, last.end))
        else:
            spans.append(Span(place.volume, place.offset, end, [(place, chunk)]))
    return spans


class Library:
    """Reads chunks of one store. Thread-safe."""

    def __init__(self, backend: Backend, cipher: Cipher = PLAIN) -> None:
        self.backend = backend
        self.cipher = cipher
        self.index = Index(self._load_table, distant=backend.traffic is not None)
        self._lock = threading.Lock()
        self._cache: OrderedDict[bytes, Buffer] = OrderedDict()
        self._cached = 0

    def learn(self, volumes: Iterable[bytes]) -> None:
        """Make sure that the chunks of these packs can be found."""
        self.index.add_packs(list(volumes))

    def learn_everything(self) -> None:
        """Load the table of every pack there is."""
        self.index.add_packs([info.name for info in self.backend.volumes() if info.is_pack])

    def get(self, chunk: bytes) -> Buffer:
        """The chunk's bytes, verified; another copy is tried when one is damaged."""
        return self.verified(chunk).plain

    def peek(self, chunk: bytes) -> Buffer:
        """The chunk's bytes, not compared with its id: for who verifies the whole that they go
        into, and turns to `get` where it is wrong. Raises Corrupt."""
        for place in self.index.find(chunk)[:1]:
            try:
                return self.read(place)
            except (Corrupt, NotFound):
                break
        return self.get(chunk)

    def peek_into(self, chunk: bytes, size: int, *starts: int) -> list[Buffer] | None:
        """Some of the chunk's bytes, the same way, where they can be had without the others: so
        many from each of these places on."""
        places = self.index.find(chunk) if self.backend.traffic is None else []
        for place in places[:1]:
            if place.codec == RAW and max(starts) + size <= place.plain:
                with suppress(Corrupt, NotFound):
                    read, volume = self.backend.read, place.volume
                    return [read(volume, place.offset + start, size) for start in starts]
        return None

    def verified(self, chunk: bytes, first: Location | None = None) -> VerifiedChunk:
        """The chunk in the form in which it may be copied. Tries the `first` place, then the others
        that are known; at each a copy on this machine, that copy fetched anew, and the original.
        Raises Corrupt, with the place, when all are damaged or gone."""
        places = self.index.find(chunk)
        if first is not None:
            places = [first, *(place for place in places if place != first)]
        failure: HoldfastError | None = None
        for place in places:
            found = self._verified_at(place, chunk)
            if isinstance(found, VerifiedChunk):
                return found
            failure = found
        raise failure or Corrupt(f"chunk {chunk.hex()[:16]} is missing from the store")

    def _verified_at(self, place: Location, chunk: bytes) -> VerifiedChunk | Corrupt:
        """The chunk as it stands at one place, or what is wrong there."""
        backend = self.backend
        # A copy may be damaged again by what damaged it before: the original comes last.
        for volumes in (backend, backend, None):
            try:
                reader = volumes or backend.originals()
                stored = reader.read(place.volume, place.offset, place.stored)
                return VerifiedChunk(chunk, place.codec, stored, place.plain, self.cipher)
            except (Corrupt, NotFound) as error:
                where = f"chunk {chunk.hex()[:16]}"
                what = str(error) if str(error).startswith(where) else f"{where}: {error}"
                failure = Corrupt(what, where=place.where)
            if not backend.distrust(place.volume, place.offset):
                break
        return failure

    def size(self, chunk: bytes) -> int | None:
        """The chunk's length, as it is said to be; None when it is not there."""
        places = self.index.find(chunk)
        return places[0].plain if places else None

    def get_shared(self, chunk: bytes) -> Buffer:
        """Like `get`, for chunks that several neighbours need: the last ones are kept."""
        with self._lock:
            if (found := self._cache.get(chunk)) is not None:
                self._cache.move_to_end(chunk)
                return found
        plain = self.get(chunk)
        self._keep({chunk: plain})
        return plain

    def get_many(self, chunks: Collection[bytes]) -> dict[bytes, Buffer]:
        """Like `get_shared` for many at once: what lies close together is read together."""
        with self._lock:
            cached = self._cache
            found = {chunk: cached[chunk] for chunk in chunks if chunk in cached}
        missing = [chunk for chunk in dict.fromkeys(chunks) if chunk not in found]
        placed = zip(missing, self.index.find_many(missing), strict=True) if missing else ()
        spans = spans_of((places[0], chunk) for chunk, places in placed if places)
        # Where each answer takes a while, they are waited for together.
        remote = self.backend.traffic is not None
        ask = workers.fetching().map if remote and len(spans) > 1 else map
        fresh: dict[bytes, Buffer] = {}
        for read in ask(self._read_span, spans):
            fresh.update(read)
        for chunk in missing:
            if chunk not in fresh:
                fresh[chunk] = self.get(chunk)  # another copy, or says what is wrong
        self._keep(fresh)
        return found | fresh

    def _read_span(self, span: Span) -> dict[bytes, Buffer]:
        """The chunks of a span that are what they should be."""
        good: dict[bytes, Buffer] = {}
        try:
            data = self.backend.read(span.volume, span.start, span.end - span.start)
        except (Corrupt, NotFound):
            return good
        for place, chunk in span.chunks:
            at = place.offset - span.start
            try:
                plain = self.decode(place, data[at : at + place.stored])
            except Corrupt:
                continue
            if chunk_id(plain) == chunk:
                good[chunk] = plain
        return good

    def _keep(self, fresh: Mapping[bytes, Buffer]) -> None:
        with self._lock:
            for chunk, plain in fresh.items():
                if chunk not in self._cache:
                    self._cache[chunk] = plain
                    self._cached += len(plain)
            while self._cached > _CACHE:
                _, dropped = self._cache.popitem(last=False)
                self._cached -= len(dropped)

    def rows(self, volume: bytes) -> list[tuple[bytes, Location]]:
        """The chunks of a volume, as far as they can be found."""
        self.learn([volume])
        return self.index.rows(volume)

    def read(self, place: Location) -> Buffer:
        """What stands at a place, decoded but not compared with any id."""
        stored = self.backend.read(place.volume, place.offset, place.stored)
        return self.decode(place, stored)

    def decode(self, place: Location, stored: Buffer) -> Buffer:
        """The plaintext of what was read at a place."""
        codec, inner = open_chunk(self.cipher, stored, place.codec, place.plain)
        return decode(inner, codec, place.plain)

    def _load_table(self, name: bytes) -> Table:
        size = self.backend.pack_size(name)
        if size is None:
            raise NotFound(f"there is no pack {name.hex()}")  # a segment of the log, or gone
        try:
            return read_table(self.backend, name, size, self.cipher)
        except Corrupt:
            if not self.backend.distrust(name, 0):
                raise
        return read_table(self.backend, name, self.backend.pack_size(name) or 0, self.cipher)
