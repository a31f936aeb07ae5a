"""The sink: where a draft's chunks go. Small drafts stay in memory and end up in the log entry;
larger ones spill into packs. A chunk that the store already has is only referred to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.store.backends.contract import Backend
from holdfast.store.chunks.chunk import (
    RAW,
    Buffer,
    Location,
    chunk_id,
    decode,
    encode,
    open_chunk,
    seal_chunk,
)
from holdfast.store.chunks.index import Index, mappable
from holdfast.store.chunks.packs import PackWriter
from holdfast.store.chunks.room import SIZE as SMALL_COMMIT
from holdfast.store.chunks.room import Room
from holdfast.store.chunks.verified import VerifiedChunk
from holdfast.store.cipher import PLAIN, Cipher

Usable = Callable[[bytes], bool]  # of a volume
FetchChunk = Callable[[bytes], VerifiedChunk]


class InlineChunk(NamedTuple):
    """A chunk that waits in memory for its commit."""

    id: bytes
    codec: int
    stored: memoryview
    plain: int
    aligned: bool


class Sink:
    """Stores chunks for one draft. Thread-safe."""

    def __init__(
        self,
        backend: Backend,
        index: Index,
        usable: Usable,
        nonce: bytes,
        cipher: Cipher = PLAIN,
    ) -> None:
        self._backend = backend
        self._cipher = cipher
        self._index = index
        self._usable = usable
        self._nonce = nonce
        self._lock = threading.Lock()
        self._inline: dict[bytes, InlineChunk] = {}
        self._room: Room | None = None  # that these lie in
        self._packs: PackWriter | None = None
        self._fresh: dict[bytes, Location | None] = {}  # None: in memory still
        self._referred: dict[bytes, Location] = {}

    @property
    def stored_bytes(self) -> int:
        """What this draft adds to the store."""
        waiting = self._room.used if self._room else 0
        return waiting + (self._packs.stored_bytes if self._packs else 0)

    @property
    def packs(self) -> list[bytes]:
        """The packs that this draft writes."""
        return self._packs.names if self._packs else []

    @property
    def inline(self) -> list[InlineChunk]:
        return list(self._inline.values())

    @property
    def body(self) -> Buffer:
        """The chunks that are inline, one after the other; until `discard`."""
        return self._room.content if self._room else b""

    def put(
        self,
        plain: Buffer,
        *,
        chunk: bytes | None = None,
        aligned: bool = False,
        passing: bool = False,
    ) -> bytes:
        """Store bytes unless they are there; gives their id. `aligned`: raw, on a page boundary.
        `passing`: as `PackWriter.add` has it."""
        chunk = chunk or chunk_id(plain)
        aligned = self._aligned(aligned)
        with self._lock:
            if chunk in self._fresh or chunk in self._referred:
                return chunk
        if (place := self._existing(chunk, aligned)) is not None:
            with self._lock:
                self._referred[chunk] = place
            return chunk
        codec, stored = (RAW, plain) if aligned else encode(plain)
        self._store(chunk, codec, stored, len(plain), aligned, passing)
        return chunk

    def written(self) -> None:
        """Wait until nobody needs what is `passing` any more; raises what went wrong with it."""
        if self._packs is not None:
            self._packs.written()

    def put_verified(self, chunk: VerifiedChunk, *, aligned: bool = False) -> None:
        """Store a chunk that was read elsewhere, compressed as it was there, unless it is here."""
        if self._aligned(aligned) or chunk.codec == RAW:
            self.put(chunk.plain, chunk=chunk.id, aligned=aligned)
        elif not self.refer_existing(chunk.id):
            self._store(chunk.id, chunk.codec, chunk.encoded, len(chunk.plain), False)

    def refer_existing(self, chunk: bytes, *, aligned: bool = False) -> bool:
        """Use the chunk as it is in the store already; False when it is not there."""
        with self._lock:
            if chunk in self._fresh or chunk in self._referred:
                return True
        place = self._existing(chunk, self._aligned(aligned))
        if place is not None:
            with self._lock:
                self._referred[chunk] = place
        return place is not None

    def read(self, chunk: bytes) -> Buffer | None:
        """What was stored here, decoded but not verified; only after `finish`. None: it was not."""
        if (inline := self._inline.get(chunk)) is not None:
            return self._decode(inline.stored, inline.codec, inline.plain)
        if (place := self._fresh.get(chunk)) is None:
            return None
        stored = self._backend.read(place.volume, place.offset, place.stored)
        return self._decode(stored, place.codec, place.plain)

    def _decode(self, stored: Buffer, codec: int, plain: int) -> Buffer:
        codec, inner = open_chunk(self._cipher, stored, codec, plain)
        return decode(inner, codec, plain)

    def _aligned(self, wanted: bool) -> bool:
        """What is encrypted cannot be mapped, so it need not lie where it could be."""
        return wanted and not self._cipher.seals

    def kept_in(
        self, chunks: Iterable[bytes], homes: dict[bytes, bytes]
    ) -> tuple[set[bytes], list[bytes]]:
        """The volumes that hold chunks of an earlier checkpoint, and the chunks that are in none of
        these: those of this draft, and others that need a closer look. `homes` are volumes that
        were found before, and takes up those that are found now."""
        asked = [c for c in chunks if c not in self._fresh and c not in self._referred]
        unknown = [chunk for chunk in asked if chunk not in homes]
        found = zip(unknown, self._index.volumes(unknown), strict=True)
        homes.update((chunk, volume) for chunk, volume in found if volume is not None)
        volumes = set(map(homes.get, asked))
        usable = {name for name in volumes if name is not None and self._usable(name)}
        ours = [c for c in chunks if c in self._fresh or c in self._referred]
        if volumes <= usable:
            return usable, ours
        astray = [chunk for chunk in asked if homes.get(chunk) not in usable]
        for chunk in astray:
            homes.pop(chunk, None)
        return usable, [*ours, *astray]

    def refer(self, chunks: Iterable[bytes], fetch: FetchChunk) -> None:
        """Use chunks of an earlier checkpoint; one whose volume is given up is stored anew."""
        unknown = [c for c in chunks if c not in self._fresh and c not in self._referred]
        found = self._index.find_many(unknown)
        given_up = self._given_up(place for places in found for place in places)
        for chunk, places in zip(unknown, found, strict=True):
            place = next((one for one in places if one.volume not in given_up), None)
            place = place or self._existing(chunk, False)
            if place is not None:
                self._referred[chunk] = place
            else:
                self.put_verified(fetch(chunk))

    def settle(self, more: int) -> bool:
        """Decide where chunks in memory go, when about `more` bytes are still to come; says
        whether they went somewhere."""
        with self._lock:
            spills = self._packs is None and self.stored_bytes + more > SMALL_COMMIT
            if spills:
                self._spill()
            return spills

    def finish(self) -> None:
        """Everything that is not inline is durable afterwards."""
        if self._packs is not None:
            self._packs.finish()

    def discard(self) -> None:
        if self._packs is not None:
            self._packs.discard()
        with self._lock:
            self._inline = {}
            if self._room is not None:
                self._room.leave()

    def volume(self, chunk: bytes) -> bytes | None:
        """Where a chunk of this draft is; None while it waits in memory."""
        if chunk in self._fresh:
            place = self._fresh[chunk]
            return None if place is None else place.volume
        return self._referred[chunk].volume

    def unusable(self) -> list[tuple[bytes, Location]]:
        """Chunks referred to whose volumes were given up since."""
        given_up = self._given_up(self._referred.values())
        return [(c, place) for c, place in self._referred.items() if place.volume in given_up]

    def _given_up(self, places: Iterable[Location]) -> set[bytes]:
        """Of the volumes of many places those that must not be referred to."""
        return {name for name in {place.volume for place in places} if not self._usable(name)}

    def rescue(self, chunk: VerifiedChunk) -> None:
        """Store anew what was only referred to."""
        del self._referred[chunk.id]
        self.put_verified(chunk)

    def _existing(self, chunk: bytes, aligned: bool) -> Location | None:
        for place in self._index.find(chunk):
            if (not aligned or mappable(place)) and self._usable(place.volume):
                return place
        return None

    def _store(
        self,
        chunk: bytes,
        codec: int,
        stored: Buffer,
        plain: int,
        aligned: bool,
        passing: bool = False,
    ) -> None:
        codec, stored = seal_chunk(self._cipher, codec, stored, plain)
        with self._lock:
            if chunk in self._fresh:
                return  # another thread was faster
            self._fresh[chunk] = None
            if self._packs is None:
                if self._room is None:
                    self._room = Room()
                if (laid := self._room.lay(stored)) is not None:
                    self._inline[chunk] = InlineChunk(chunk, codec, laid, plain, aligned)
                    return
                self._spill()
            packs = self._packs
        assert packs is not None
        place = packs.add(chunk, codec, stored, plain, aligned=aligned, passing=passing)
        self._fresh[chunk] = place

    def spill(self) -> None:
        """Let nothing wait in memory: several commits will refer to it."""
        with self._lock:
            if self._packs is None:
                self._spill()

    def _spill(self) -> None:
        """The draft is no longer small: what waited in memory goes to a pack."""
        self._packs = PackWriter(self._backend, self._nonce, self._cipher)
        for item in self._inline.values():
            self._fresh[item.id] = self._packs.add(
                item.id, item.codec, item.stored, item.plain, aligned=item.aligned
            )
        self._inline = {}
        if self._room is not None:
            self._room.leave()
            self._room = None
