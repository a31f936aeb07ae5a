"""Drafts: checkpoints in the making. Nothing of a draft exists for others until `commit`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any

import msgspec
import uuid_utils

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint, Split
from holdfast.model.errors import BadInput, Corrupt, Denied, NotFound, UsageError
from holdfast.model.subject import Subject
from holdfast.model.tracing import span
from holdfast.store import references
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import Buffer
from holdfast.store.composition import Composition, Piece
from holdfast.store.log.catalogue import Catalogue, Record, id_text
from holdfast.store.log.entries import Commit, Verb
from holdfast.store.origin import Origin, Volumes
from holdfast.store.parts import cutting
from holdfast.store.parts.blocks import PageTable
from holdfast.store.parts.pagereader import PageReader
from holdfast.store.parts.pagewriter import PageWriter, Written
from holdfast.store.parts.part import (
    INLINE_LEAF,
    PAGED,
    PIECES,
    Facts,
    PartRecord,
    Pieces,
    check_part_name,
    encode_pieces,
    pieces_root,
)
from holdfast.store.parts.patching import PatchWriter, Stretch
from holdfast.store.parts.printing import Printing
from holdfast.store.parts.recall import Recollection
from holdfast.store.parts.sources import Source, windows
from holdfast.store.parts.trees import Twig, write_tree
from holdfast.store.shelf import Original

_PIECE = 1024 * 1024  # pieces of a `whole` part


class Draft:
    """A checkpoint being written. As a context manager: leaving without `commit` discards it."""

    def __init__(
        self,
        composition: Composition,
        subject: Subject,
        parent: Record | None,
        *,
        reason: str,
        stage: str | None,
        tags: Mapping[str, str],
        verb: Verb = "checkpoint",
        rollback_of: bytes | None = None,
        fence: int = 0,
    ) -> None:
        self._composition = composition
        self._ledger = composition.ledger
        self._sink = composition.sink
        self._subject = str(subject)
        self._parent = parent
        self._reason = reason
        self._stage = stage
        self._tags = dict(tags)
        self._verb = verb
        self._rollback_of = rollback_of
        self._fence = fence
        self._before: dict[str, PartRecord] | None = None  # the parent's parts, once asked for
        self._pieces: dict[str, Piece] = {}
        self._trees: dict[str, tuple[Twig, Recollection | None]] = {}  # to be recalled
        self._printings: dict[str, Printing] = {}
        self._new: list[tuple[PageTable, set[bytes]]] = []  # with chunks that have no home yet
        self._origins: dict[str | None, Origin] = {}  # of parts that are taken over
        self._done = False
        _check_texts(reason, stage, self._tags)

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()

    def put(
        self,
        name: str,
        source: Source | Any,
        split: Split = "whole",
        *,
        skew: int = 0,
        moved: bool = False,
        passing: bool = False,
    ) -> None:
        """Add a part. For `structure` the source is a JSON-like value, for all others bytes: a
        buffer, a Path, a binary file, or an iterable of buffers. `skew` is the offset of the first
        byte within its memory page. `moved` says that pages may stand elsewhere than in the parent:
        where many of them differ they are looked for. `passing` says that nobody will read the
        part soon: a segment then goes past the file cache. Raises BadInput; the draft can go on
        without the part. After any other error, the source's own too, the draft is finished."""
        self._check_open()
        check_part_name(name)
        if name in self._pieces:
            raise BadInput(f"the draft has a part {name!r} already")
        if not 0 <= skew < 4096:
            raise BadInput(f"a skew is an offset within a page, not {skew}")
        try:
            if split in PAGED:
                piece = self._put_pages(name, source, split, skew, moved, passing)
            elif split == "structure":
                piece = self._put_value(name, source)
            elif split in ("whole", "content"):
                piece = self._put_pieces(name, source, split)
            else:
                raise UsageError(f"unknown split {split!r}")
        except (BadInput, UsageError):
            raise
        except BaseException:
            # Which chunks were written is not known for sure; a commit could miss some.
            self.discard()
            raise
        self._pieces[name] = piece

    def keep(self, name: str, of: str | None = None) -> int:
        """Take a part over, by default from the parent, without giving its bytes; its size."""
        self._check_open()
        if name in self._pieces:
            raise BadInput(f"the draft has a part {name!r} already")
        source = self._source(name, of)
        part = source.part(name)
        self._keep([part], source.volumes)
        return part.size

    def foresee(self, of: str) -> None:
        """Look up a checkpoint that parts will be taken over from, while there is time. Raises
        NotFound and Denied."""
        self._check_open()
        self._source("anything", of)

    def patch(self, name: str, stretches: Iterable[Stretch], of: str | None = None) -> None:
        """Take a part of pages over with other bytes in some places: offsets and what is there.

        They are given in order and do not overlap. Only what differs is stored. Raises NotFound,
        and Corrupt when what is to be changed cannot be read: then the draft is finished.
        """
        self._check_open()
        if name in self._pieces:
            raise BadInput(f"the draft has a part {name!r} already")
        before = self._source(name, of).part(name)
        if not before.paged:
            raise BadInput(f"{name!r} is not made of pages, so it cannot be patched")
        try:
            base = PageReader(self._ledger.library, before, self._ledger.tables)
            writer = PatchWriter(self._sink, self._ledger.library, base, before.split == "segment")
            written = writer.patch(stretches)
        except BaseException:
            self.discard()
            raise
        self._pieces[name] = self._paged(name, before.size, before.split, before.skew, written)

    def _source(self, name: str, of: str | None) -> Origin:
        """The checkpoint to take a part over from, looked up once: our hold keeps it in place."""
        if (known := self._origins.get(of)) is not None:
            return known
        source = self._parent
        if of is not None and (source is None or of != id_text(source.id)):
            source = references.resolve(self._ledger.refresh(), of)
        if source is None:
            raise NotFound(f"there is no parent to keep {name!r} of")
        if source.foreign:
            raise Denied(
                f"{name!r} cannot be kept: its origin was signed by a key that is not known here",
                hint="import the key with `holdfast key import`, or give the bytes",
            )
        origin = self._origins[of] = Origin.of(self._ledger, source)
        return origin

    def keep_from(self, reference: Checkpoint, *, prefix: str = "", under: str = "") -> None:
        """Take parts over from any checkpoint of this store: those whose names begin with `prefix`,
        which gives way to `under`. Raises NotFound, Denied, and BadInput for a name twice."""
        self._check_open()
        source = self._ledger.refresh().record(uuid.UUID(reference.id).bytes)
        if source.foreign:
            raise Denied(
                f"{reference.short} was signed by a key that is not known here",
                hint="import the key with `holdfast key import`",
            )
        records = [
            msgspec.structs.replace(record, name=under + record.name.removeprefix(prefix))
            for record in self._ledger.part_records(source)
            if record.name.startswith(prefix)
        ]
        for record in records:
            check_part_name(record.name)
            if record.name in self._pieces:
                raise BadInput(f"the draft has a part {record.name!r} already")
        self._keep(records, self._ledger.catalogue.volumes(source))

    def keep_all(self, of: Record) -> None:
        """Take every part over from another checkpoint."""
        self._check_open()
        self._keep(self._ledger.part_records(of), self._ledger.catalogue.volumes(of))

    def _keep(self, records: Iterable[PartRecord], volumes: Volumes) -> None:
        for record in records:
            kept_in = tuple(v for i in record.volumes for v in volumes[i])
            self._pieces[record.name] = Piece(record, kept_in=kept_in)

    def commit(self) -> Checkpoint:
        """Make it a checkpoint: durable when this returns, and the head of its subject."""
        self._check_open()
        checkpoint = uuid_utils.uuid7().bytes
        try:
            with span("store.commit", subject=self._subject):
                now = self._composition.commit(lambda now: self._entry(now, checkpoint))
        finally:
            self.discard()
        record = now.record(checkpoint)
        self._remember(record)
        return record.checkpoint()

    def discard(self) -> None:
        """Give up whatever was not committed; may be called twice."""
        self._done = True
        self._composition.discard()

    # -- parts

    def _put_pages(
        self, name: str, source: Source, split: Split, skew: int, moved: bool, passing: bool
    ) -> Piece:
        library = self._ledger.library
        base = self._base(name, skew)
        aligned = split == "segment"
        # What is stored as it is can be compared with as quickly as it is read.
        parent = self._parent.id if self._parent else None
        printing = None if aligned else self._ledger.prints.begin(self._subject, name, parent)
        writer = PageWriter(self._sink, library, base, aligned, moved, passing, printing)
        total, written = writer.write(windows(source, skew))
        if printing is not None:
            self._printings[name] = printing
        return self._paged(name, max(0, total - skew), split, skew, written)

    def _paged(self, name: str, size: int, split: Split, skew: int, written: Written) -> Piece:
        piece = self._mapped(name, size, split, written.root, skew, written.leaves, written.chunks)
        piece.kept_in, piece.kept = tuple(written.kept_in), lambda: written.kept
        for leaf, table in zip(piece.record.leaf_ids(), written.tables, strict=False):
            if len(table.ids) <= 2 * len(table):  # else many of them are no longer in use
                self._ledger.tables.keep(leaf, table)
                self._new.append((table, written.chunks))
        return piece

    def _base(self, name: str, skew: int) -> PageReader | None:
        """The parent's part to compare with, where it has one and all of it is there. A parent
        that lost some of its bytes is no reason to lose the child."""
        if self._parent is None:
            return None
        try:
            if self._before is None:
                records = self._ledger.part_records(self._parent)
                self._before = {record.name: record for record in records}
            before = self._before.get(name)
            if before is None or not before.paged or before.skew != skew:
                return None
            reader = PageReader(self._ledger.library, before)
            chunks = [chunk for table in reader.tables() for chunk in table.ids]
        except Corrupt:
            return None
        return reader if self._ledger.library.index.has_all(chunks) else None

    def _put_pieces(self, name: str, source: Source, split: Split) -> Piece:
        def store(data: bytes) -> tuple[bytes, int]:
            return self._sink.put(data), len(data)

        stored = [*workers.in_order(store, _cut(source, split), 8 * workers.count())]
        ids = [chunk for chunk, _ in stored]
        lengths = [length for _, length in stored]
        root = pieces_root(stored)
        leaves = [
            encode_pieces(Pieces(b"".join(ids[i : i + PIECES]), tuple(lengths[i : i + PIECES])))
            for i in range(0, len(ids), PIECES)
        ]
        return self._mapped(name, sum(lengths), split, root, 0, leaves, set(ids))

    def _put_value(self, name: str, value: Any) -> Piece:
        used: set[bytes] = set()

        def put(data: bytes) -> bytes:
            chunk = self._sink.put(data)
            used.add(chunk)
            return chunk

        last = self._recalled(name)
        root, tree = write_tree(value, put, last.tree if last else None)
        piece = self._mapped(name, tree.size, "structure", root, 0, [], used)
        self._trees[name] = tree, last
        if last is not None:
            kept = partial(_without, tree.chunks, frozenset(used))
            piece.kept = kept
            if len(last.needs) > 1:
                piece.kept_in = tuple(set(map(last.volumes.__getitem__, kept())))
            elif any(chunk not in used for chunk in tree.chunks):  # known after a few, mostly
                piece.kept_in = tuple(last.needs)
        return piece

    def _recalled(self, name: str) -> Recollection | None:
        """What was last written under this name, if its chunks are where they were then."""
        last = self._ledger.recall.last((self._subject, name))
        if last is None:
            return None
        now = self._ledger.catalogue
        good = all(now.is_usable(volume, last.seq) for volume in last.needs)
        return last if good else None

    def _remember(self, record: Record) -> None:
        parent = self._parent.id if self._parent else None
        for name, printing in self._printings.items():
            self._ledger.prints.keep(Original(self._subject, name, record.id), printing, parent)
        origin = record.frame.origin
        for table, chunks in self._new:
            homes = {c: self._sink.volume(c) or origin for c in table.ids if c in chunks}
            table.homes.update(homes)
        for name, piece in self._pieces.items():
            if name in self._trees:
                tree, last = self._trees[name]
                fresh = {c: self._sink.volume(c) or origin for c in piece.chunks}
                known = last.volumes if last and piece.kept_in else {}
                if len(known) > 2 * len(tree.chunks):  # mostly of what is no longer there
                    known = {c: known[c] for c in (piece.kept() if piece.kept else ())}
                new = Recollection(
                    tree,
                    {**known, **fresh},
                    frozenset((*piece.kept_in, *fresh.values())),
                    record.frame.seq,
                )
                self._ledger.recall.keep((self._subject, name), new)

    def _mapped(
        self,
        name: str,
        size: int,
        split: Split,
        root: bytes,
        skew: int,
        leaves: list[bytes],
        used: set[bytes],
    ) -> Piece:
        inline = len(leaves) == 1 and len(leaves[0]) <= INLINE_LEAF
        if inline:
            packed = leaves[0]
        else:
            ids = [self._sink.put(leaf) for leaf in leaves]
            used = used.union(ids)
            packed = b"".join(ids)
        record = PartRecord(
            name=name,
            size=size,
            split=split,
            root=root,
            skew=skew,
            inline=inline,
            map=packed,
            volumes=(),
        )
        return Piece(record, used)

    def _entry(self, now: Catalogue, checkpoint: bytes) -> tuple[Commit, Buffer]:
        """The commit as it must read on top of the log as it is now."""
        now.check_right(self._subject, self._fence)
        if self._verb == "fork":
            now.check_free(self._subject)
        facts = Facts(
            id=checkpoint,
            subject=self._subject,
            parents=() if self._parent is None else (self._parent.commit.id,),
            reason=self._reason,
            stage=self._stage,
            time=now.next_time(moment.now()),
            tags=self._tags,
            rollback_of=self._rollback_of,
        )
        pieces = self._pieces.values()
        return self._composition.compose(now, facts, pieces, self._verb, fence=self._fence)

    def _check_open(self) -> None:
        if self._composition.process != os.getpid():
            raise UsageError(
                "a draft belongs to the process that began it", hint="begin one after the fork"
            )
        if self._done:
            raise UsageError("this draft is finished", hint="begin a new one with store.draft()")


def _without(chunks: list[bytes], others: frozenset[bytes]) -> list[bytes]:
    return [chunk for chunk in chunks if chunk not in others]


def _check_texts(reason: str, stage: str | None, tags: Mapping[str, str]) -> None:
    """Before gigabytes are stored, not after."""
    given = (reason, stage or "", *tags, *tags.values())
    if all(type(text) is str and text.isascii() for text in given):
        return
    texts = [("the reason", reason), *((f"the tag {name!r}", name) for name in tags)]
    texts += [(f"the value of the tag {name!r}", value) for name, value in tags.items()]
    if stage is not None:
        texts.append(("the stage", stage))
    for what, text in texts:
        if not isinstance(text, str):
            raise BadInput(
                f"{what} is {type(text).__name__}, not a text", hint="numbers: str(0.97)"
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadInput(f"{what} holds half a character (a lone surrogate)") from None


def _cut(source: Source, split: Split) -> Iterator[bytes]:
    """The pieces of a `whole` or `content` part, as bytes of their own."""
    if split == "whole":
        for fetch in windows(source, size=_PIECE):
            yield bytes(fetch())
        return
    pending = b""
    for fetch in windows(source):
        pending += bytes(fetch())
        start = 0
        for end in cutting.cut(memoryview(pending), final=False):
            yield pending[start:end]
            start = end
        pending = pending[start:]
    start = 0
    for end in cutting.cut(memoryview(pending), final=True):
        yield pending[start:end]
        start = end
