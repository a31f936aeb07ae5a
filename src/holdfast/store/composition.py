"""Compositions: chunks on their way into the store, and the commits that will refer to them.

Nothing of a composition exists for others until an entry that it composed is in the log. Its hold
keeps what it refers to in place until it is discarded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import msgspec

from holdfast.model.errors import BadInput, Conflict
from holdfast.store.backends.contract import Hold, hold_for_writing
from holdfast.store.chunks.chunk import MAX_CHUNK, Buffer
from holdfast.store.chunks.sink import Sink
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Catalogue
from holdfast.store.log.entries import HERE, Commit, Verb
from holdfast.store.parts.contents import part_chunks
from holdfast.store.parts.part import INLINE_PARTS, PartRecord, Stated, digest, encode_parts

Build = Callable[[Catalogue], tuple[Commit, Buffer]]


@dataclass(slots=True)
class Piece:
    """A part of a commit to be: what will stand there, and the chunks it needs."""

    record: PartRecord
    chunks: set[bytes] = field(default_factory=set)
    kept_in: tuple[bytes, ...] = ()  # volumes of what was taken over as it is
    # The chunks of that, asked for only where they must be stored anew; None: all there is.
    kept: Callable[[], Collection[bytes]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Who made a checkpoint that came from elsewhere, whether who brings it vouches for it, and
    what was said of it there."""

    maker: bytes
    proof: bytes
    trusted: bool
    labels: dict[str, str] | None
    pinned: bool


class Composition:
    """Takes chunks through its sink, and composes commits of them."""

    _hold: Hold | None = None  # while there is something to give up

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.process = os.getpid()
        hold = hold_for_writing(ledger.backend, ledger.catalogue.seq)
        try:
            self._began = began = ledger.refresh().seq
            ledger.library.learn(ledger.catalogue.usable())
        except BaseException:
            hold.release()
            raise
        self.sink = Sink(
            ledger.backend,
            ledger.library.index,
            # What was found when the composition began may have been given up since.
            lambda volume: ledger.catalogue.is_usable(volume, began),
            hold.nonce,
            ledger.cipher,
        )
        self._counted = 0  # bytes that a commit has said to have stored
        self._hold = hold

    def discard(self) -> None:
        """Give up whatever no commit refers to; may be called twice."""
        hold, self._hold = self._hold, None
        if hold is not None and self.process == os.getpid():  # a forked child's are its parent's
            self.sink.discard()
            hold.release()

    def __del__(self) -> None:
        # One that is forgotten must not keep its files and its hold until the process ends.
        self.discard()

    def commit(self, build: Build) -> Catalogue:
        """Append the entry that `build` composes of the log as it is then."""
        if self.sink.packs:
            # Writes them out, which may take long; others should not have to wait for that.
            build(self.ledger.refresh())
        now = self.ledger.append(build)
        self._counted = self.sink.stored_bytes  # not counted again for the next one
        return now

    def compose(
        self,
        now: Catalogue,
        facts: Stated,
        pieces: Collection[Piece],
        verb: Verb,
        *,
        fence: int = 0,
        provenance: Provenance | None = None,
    ) -> tuple[Commit, Buffer]:
        """The commit as it must read on top of the log as it is now, and its body."""
        if any(name in now.condemned for name in self.sink.packs):
            raise Conflict(
                "this process was taken for dead, and what it had stored was collected",
                hint="do it again",
            )
        self._rescue(now, pieces)
        needed = [self._needed(piece) for piece in pieces]
        # Where chunks are must not change any more once the parts say where.
        if self.sink.settle(sum(map(_listed_size, pieces, needed))):
            needed = [self._needed(piece) for piece in pieces]
        volumes: dict[bytes, int] = {}
        parts = [_placed(*each, volumes) for each in zip(pieces, needed, strict=True)]
        listed = encode_parts(parts)
        parts_chunk = b""
        if len(listed) > MAX_CHUNK:
            raise BadInput(
                f"{len(parts)} parts are more than one checkpoint can list",
                hint="put many small things into one part",
            )
        if len(listed) > INLINE_PARTS:
            parts_chunk = self.sink.put(listed)
            volumes.setdefault(self._volume(parts_chunk), len(volumes))
            listed = b""
        self.sink.finish()
        inline = self.sink.inline
        found = digest(facts, parts)
        commit = Commit(
            id=facts.id,
            subject=facts.subject,
            parents=facts.parents,
            reason=facts.reason,
            stage=facts.stage,
            time=facts.time,
            tags=facts.tags,
            digest=found,
            size=sum(part.size for part in parts),
            stored=self.sink.stored_bytes - self._counted,
            part_count=len(parts),
            parts=listed,
            parts_chunk=parts_chunk,
            volumes=b"".join(volumes),
            chunk_ids=b"".join(chunk.id for chunk in inline),
            chunk_sizes=tuple(n for c in inline for n in (len(c.stored), c.plain, c.codec)),
            verb=verb,
            before=now.heads.get(facts.subject),
            rollback_of=facts.rollback_of,
            fence=fence,
            maker=provenance.maker if provenance else b"",
            proof=provenance.proof if provenance else self.ledger.keyring.prove(found),
            trusted=provenance is not None and provenance.trusted,
            labels=provenance.labels if provenance else None,
            pinned=provenance is not None and provenance.pinned,
        )
        return commit, self.sink.body

    def _needed(self, piece: Piece) -> set[bytes]:
        """The volumes that a part's chunks are in."""
        return {self._volume(chunk) for chunk in piece.chunks}.union(piece.kept_in)

    def _volume(self, chunk: bytes) -> bytes:
        return self.sink.volume(chunk) or HERE

    def _rescue(self, now: Catalogue, pieces: Collection[Piece]) -> None:
        """Store anew what we meant to refer to, where its volume was given up meanwhile.

        Our hold keeps the file itself in place until we are done.
        """
        library = self.ledger.library
        if now.seq != self._began:
            library.learn(now.usable())  # what was moved is found where it went
        for chunk, place in self.sink.unusable():
            self.sink.rescue(library.verified(chunk, first=place))
        given_up = {
            name
            for name in set().union(*(piece.kept_in for piece in pieces))
            if not now.is_usable(name, self._began)
        }
        for piece in pieces if given_up else ():
            if not given_up.isdisjoint(piece.kept_in):
                again = piece.kept
                chunks = set(part_chunks(library, piece.record) if again is None else again())
                self.sink.refer(chunks, library.verified)
                piece.chunks |= chunks
                piece.kept, piece.kept_in = tuple, ()


def _listed_size(piece: Piece, needed: set[bytes]) -> int:
    """At most so many bytes stand for a part in the list of parts."""
    return len(piece.record.name.encode()) + len(piece.record.map) + 5 * len(needed) + 128


def _placed(piece: Piece, needed: set[bytes], volumes: dict[bytes, int]) -> PartRecord:
    numbers = tuple([volumes.setdefault(name, len(volumes)) for name in sorted(needed)])
    return msgspec.structs.replace(piece.record, volumes=numbers)
