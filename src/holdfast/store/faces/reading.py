"""Reading: the parts of a checkpoint, as bytes, values or memory. Every byte is verified."""

from __future__ import annotations

import io
from typing import Any, BinaryIO, Literal, cast

from holdfast.model.errors import UsageError
from holdfast.store import references
from holdfast.store.copies import SMALLEST
from holdfast.store.faces.opened import Opened, Reference, check_trust
from holdfast.store.log.catalogue import Record
from holdfast.store.origin import Origin
from holdfast.store.parts.layouts import Layouts
from holdfast.store.parts.mapping import Mapping, map_part
from holdfast.store.parts.part import PartRecord, decode_parts
from holdfast.store.parts.streams import PartStream
from holdfast.store.parts.structure import read_value
from holdfast.store.shelf import Original


class Reading(Opened):
    """What was saved, and nothing else. Nothing that is being read is deleted meanwhile."""

    def open(self, reference: Reference, part: str, *, trust: bool = False) -> BinaryIO:
        """A part as a binary file, verified while it is read."""
        hold = self._ledger.backend.hold(self._ledger.catalogue.seq)
        try:
            stream = PartStream(self._ledger.library, self._readable(reference, part, trust), hold)
        except BaseException:
            hold.release()
            raise
        return cast(BinaryIO, io.BufferedReader(stream, buffer_size=256 * 1024))

    def read(self, reference: Reference, part: str, *, trust: bool = False) -> bytes:
        """A whole part."""
        with self._holding():
            return PartStream(
                self._ledger.library, self._readable(reference, part, trust)
            ).readall()

    def copy_part(self, reference: Reference, part: str, fd: int, *, trust: bool = False) -> int:
        """Write a part to an open file, with several threads; returns its size."""
        with self._holding():
            return PartStream(self._ledger.library, self._readable(reference, part, trust)).copy_to(
                fd
            )

    def value(self, reference: Reference, part: str, *, trust: bool = False) -> Any:
        """The value of a `structure` part."""
        ledger = self._ledger
        found = references.resolve(ledger.refresh(), reference)
        last = ledger.recall.last((found.commit.subject, part))
        if last is not None and last.seq == found.frame.seq:
            return last.tree.build()  # this process wrote it
        if (copy := self._copied(found, part, trust)) is not None:
            return copy
        with self._holding():
            record = self._readable(reference, part, trust)
            if record.split != "structure":
                raise UsageError(
                    f"part {part!r} is bytes, not a value", hint="use open() or read()"
                )
            value = read_value(record.root, ledger.library.get, ledger.library.get_many)
        if (original := self._original(found, part)) is not None:
            ledger.copies.keep(original, value)
        return value

    def _copied(self, found: Record, part: str, trust: bool) -> Any:
        """The value as a copy has it; None when there is none."""
        check_trust(found, trust)
        original = self._original(found, part)
        return self._ledger.copies.find(original) if original is not None else None

    def _original(self, found: Record, part: str) -> Original | None:
        """What a copy would be named after; None for what has none: what is small or no head, or
        what is not described in the log itself."""
        head = self._ledger.catalogue.heads.get(found.subject) == found.id
        if not head or found.commit.size < SMALLEST or not found.commit.parts:
            return None
        # Not by the ledger, which would see to it that the chunks can be found, too.
        parts = decode_parts(found.commit.parts)
        record = next((each for each in parts if each.name == part), None)
        if record is None or record.split != "structure" or record.size < SMALLEST:
            return None
        return Original(found.subject, part, found.id, record.root)

    def close(self) -> None:
        """Let go of everything. The next process finds what this one wrote last ready to read."""
        ledger = self._ledger
        for (subject, part), last in ledger.recall.all():
            head = ledger.catalogue.head(subject)
            if head is not None and head.frame.seq == last.seq:
                original = self._original(head, part)
                if original is not None:
                    ledger.copies.keep(original, last.tree.build())
        super().close()

    def map(
        self,
        reference: Reference,
        part: str,
        *,
        writable: bool = False,
        verify: Literal["background", "first"] = "background",
        trust: bool = False,
    ) -> Mapping:
        """A part in memory: mapped where it is stored raw, read where it is not.

        `writable` gives a private copy-on-write view. Mapped bytes are verified in the background;
        `verify="first"` waits for it and raises Corrupt.
        """
        hold = self._ledger.backend.hold(self._ledger.catalogue.seq)
        try:
            found = self._readable(reference, part, trust)
        except BaseException:
            hold.release()
            raise
        mapping = map_part(self._ledger.library, found, hold, writable=writable)
        if verify == "first":
            mapping.check()
        return mapping

    def lay_out(
        self, reference: Reference, *, large: int | None = None, trust: bool = False
    ) -> Layouts:
        """Where the bytes of all parts of pages are, and of other parts of bytes that are `large`:
        another process maps them by that.

        What is not stored as it is goes to the spill. Bytes in files are verified when
        `Layouts.verify` or `check` ask for it. Raises Corrupt.
        """
        hold = self._ledger.backend.hold(self._ledger.catalogue.seq)
        try:
            found = Origin.of(self._ledger, self._found(reference, trust=trust))
            parts = [part for part in found.parts.values() if _laid_out(part, large)]
        except BaseException:
            hold.release()
            raise
        return Layouts(self._ledger.library, parts, hold)

    def _readable(self, reference: Reference, part: str, trust: bool) -> PartRecord:
        return Origin.of(self._ledger, self._found(reference, trust=trust)).part(part)


def _laid_out(part: PartRecord, large: int | None) -> bool:
    if part.paged:
        return True
    return large is not None and part.size >= large and part.split != "structure"
