"""Layouts: where the bytes of parts are, for another process that maps them by that."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.store.backends.contract import Hold
from holdfast.store.chunks.chunk import Buffer
from holdfast.store.chunks.library import Library
from holdfast.store.parts.blocks import PAGE
from holdfast.store.parts.mapping import (
    BlockRun,
    CopyRun,
    FileRun,
    Run,
    Shown,
    decoded,
    file_runs,
    layered_runs,
    verify,
)
from holdfast.store.parts.pagereader import PageReader
from holdfast.store.parts.part import PartRecord
from holdfast.store.parts.streams import PartStream


class Spill:
    """A file in memory, of what cannot be mapped where it is stored."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("holdfast-spill", os.MFD_CLOEXEC)
        self._end = 0

    def room(self, size: int) -> int:
        """The offset of so many bytes at its end, from the beginning of a page on."""
        at = -(-self._end // PAGE) * PAGE
        self._end = at + size
        return at

    def write(self, data: Buffer) -> int:
        """Append, at the beginning of a page; gives the offset."""
        at = self.room(memoryview(data).nbytes)
        view, where = memoryview(data), at
        while view:
            done = os.pwrite(self.fd, view, where)
            view, where = view[done:], where + done
        return at

    def __del__(self) -> None:
        os.close(self.fd)


class Delta(NamedTuple):
    """What to XOR onto the block that begins at `start`: byte `at` onwards of a stretch of the
    spill."""

    start: int
    offset: int
    size: int
    at: int


@dataclass(slots=True)
class Layout:
    """Where the bytes of a part are, for whoever maps it elsewhere: stretches of files, and of a
    spill. Everything else is zero."""

    size: int
    skew: int
    files: list[FileRun] = field(default_factory=list)
    copies: list[tuple[int, int, int]] = field(default_factory=list)  # grid, size, in the spill
    under: Layout | None = None  # what deltas lie on: not to be shown bare
    deltas: list[Delta] = field(default_factory=list)

    def copied(self, start: int, size: int, at: int) -> None:
        """A stretch that is in the spill; one that follows the last there and here goes with it."""
        if self.copies:
            first, length, where = self.copies[-1]
            if (first + length, where + length) == (start, at):
                self.copies[-1] = first, length + size, where
                return
        self.copies.append((start, size, at))


class Layouts(dict[str, Layout]):
    """Parts by name, where they are; those that have no pages are in the spill. What lies in files
    is verified when that is asked for: whoever waits for the bytes should not have to share the
    processor with that. They stay in place until all was verified, or nobody has this any more."""

    def __init__(self, library: Library, parts: Iterable[PartRecord], hold: Hold) -> None:
        """Find them. Raises Corrupt, and then the hold is released."""
        super().__init__()
        self.spill = Spill()
        self._library = library
        self._hold = hold
        self._shown: list[Shown] = []
        self._verification: list[Future[None]] | None = None
        self._lock = threading.Lock()
        self._give_up = weakref.finalize(self, _give_up, hold, os.getpid())
        try:
            for part in parts:
                self[part.name] = self._find(part)
        except BaseException:
            self._give_up()
            raise

    def _find(self, part: PartRecord) -> Layout:
        layout = Layout(part.size, part.skew)
        if not part.paged:
            at = self.spill.room(part.size)
            PartStream(self._library, part).copy_to(self.spill.fd, at)
            layout.copied(0, part.size, at)
            return layout
        reader = PageReader(self._library, part)
        runs: list[Run] = [*file_runs(self._library, reader, self._shown)]
        layered = [*layered_runs(reader)]
        if layered and not self._lay_over(layout, reader, layered):
            runs += layered
        self._place(layout, reader, runs)
        return layout

    def _place(self, layout: Layout, reader: PageReader, runs: list[Run]) -> None:
        layout.files += [run for run in runs if isinstance(run, FileRun)]
        for start, piece in decoded(self._library, reader, runs):
            layout.copied(start, len(piece), self.spill.write(piece))

    def _lay_over(self, layout: Layout, reader: PageReader, layered: list[BlockRun]) -> bool:
        """Leave it to the other process to put blocks together, which saves it a copy of them;
        False where most of what they are made of is not in files as it is."""
        shown: list[Shown] = []
        under = [*file_runs(self._library, reader, shown, layered=True)]
        copied = sum(run.size for run in under if isinstance(run, CopyRun))
        if 2 * copied >= sum(run.size for run in under):
            return False
        layout.under = Layout(layout.size, layout.skew)
        self._place(layout.under, reader, [*under])
        self._shown += shown
        places: dict[bytes, tuple[int, int]] = {}
        for run in layered:
            for chunk, at in reader.layers(run.block):
                if chunk not in places:
                    data = self._library.get_shared(chunk)
                    places[chunk] = self.spill.write(data), len(data)
                layout.deltas.append(Delta(run.start, *places[chunk], at))
        return True

    def verify(self) -> list[Future[None]]:
        """Begin to look at every byte, if that has not begun; each raises Corrupt."""
        with self._lock:
            if self._verification is None:
                self._give_up.detach()
                self._verification = verify(self._library, self._shown, self._hold)
            return self._verification

    def check(self) -> None:
        """Wait until every byte was verified; raises Corrupt."""
        for future in self.verify():
            future.result()


def _give_up(hold: Hold, process: int) -> None:
    """In a forked child the hold is the parent's."""
    if process == os.getpid():
        hold.release()
