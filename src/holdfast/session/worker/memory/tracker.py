"""Which bytes of a buffer changed since a capture that the host has.

Every doubt means that all of them did. Captures are numbered by their requests. What was found
dirty for a capture stays on the list until a later capture has become a checkpoint, so nothing is
lost when one fails on its way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.session.worker.memory.pagemap import PAGE, Pagemap, Runs

MOST = 1000  # regions at once: each costs the kernel two mappings, of which there are 65530
_HOT = 2  # captures in a row that find most of a region rewritten: watching it does not pay
_REST = 16  # captures for which such a region is left alone

Place = tuple[int, int]  # address and size


@dataclass(slots=True)
class Region:
    """A buffer that is watched since a capture."""

    address: int
    size: int
    since: int
    dirty: dict[int, Runs] = field(default_factory=dict)  # found at which capture
    labels: dict[int, str] = field(default_factory=dict)  # what it was called in which capture
    hot: int = 0

    @property
    def start(self) -> int:
        return self.address // PAGE * PAGE

    @property
    def end(self) -> int:
        return -(-(self.address + self.size) // PAGE) * PAGE


class Tracker:
    """Knows what changed, where the kernel can tell; else nothing is known."""

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self._pagemap: Pagemap | None = None
        self._process = 0
        self._regions: dict[Place, Region] = {}
        self._resting: dict[Place, int] = {}  # until which capture
        self._now = 0
        self._base = 0

    def begin(self, capture: int, base: int) -> None:
        """A capture begins: look at everything that is watched. `base` is what the host has."""
        self._now, self._base = capture, base
        if self._process != os.getpid():
            self._open()
        for place, region in list(self._regions.items()):
            self._look(place, region)

    def _open(self) -> None:
        """For this process; of a fork's regions nothing is known."""
        self._process = os.getpid()
        self._regions.clear()
        self._pagemap = None
        if self._enabled:
            try:
                self._pagemap = Pagemap()
            except OSError:
                self._enabled = False  # this kernel cannot, or does not let us

    def _look(self, place: Place, region: Region) -> None:
        assert self._pagemap is not None
        try:
            found = self._pagemap.written(region.start, region.end)
        except OSError:  # it was freed, moved or replaced
            self._drop(place, region)
            return
        region.dirty[self._now] = found
        for known in (region.dirty, region.labels):
            for capture in [c for c in known if c < self._base or (c == self._base and known is region.dirty)]:
                del known[capture]
        mostly = 2 * sum(end - start for start, end in found) > region.end - region.start
        region.hot = region.hot + 1 if mostly else 0
        if region.hot >= _HOT:
            self._resting[place] = self._now + _REST
            self._drop(place, region)

    def _drop(self, place: Place, region: Region) -> None:
        assert self._pagemap is not None
        del self._regions[place]
        try:
            self._pagemap.forget(region.start, region.end)
        except OSError:
            return  # there is nothing left to forget

    def watch(self, places: Iterable[Place]) -> None:
        """From this capture on; nothing has run since it began."""
        if self._pagemap is None or self._process != os.getpid():
            return
        for place in places:
            if place in self._regions or len(self._regions) >= MOST:
                continue
            if self._resting.get(place, 0) > self._now:
                continue
            self._resting.pop(place, None)
            region = Region(*place, since=self._now)
            try:
                self._pagemap.watch(region.start, region.end)
            except OSError:
                continue  # not private memory, or no room: it is looked at as a whole
            self._regions[place] = region

    def changed(self, place: Place, label: str) -> Runs | None:
        """Offsets of what changed since the host's checkpoint; None when that is not known."""
        region = self._regions.get(place)
        if region is None or region.since > self._base:
            return None
        if region.labels.get(self._base) != label:
            return None
        address, size = place
        runs = [run for capture, found in region.dirty.items() if capture > self._base for run in found]
        return joined(
            (max(start - address, 0), min(end - address, size)) for start, end in runs
        )

    def captured(self, capture: int, memory: Iterable[tuple[int, int, str]]) -> None:
        """A capture has sent these: addresses, sizes and labels."""
        for address, size, label in memory:
            region = self._regions.get((address, size))
            if region is not None and region.since <= capture:
                region.labels[capture] = label

    def restored(self, capture: int, memory: Iterable[tuple[int, int, str]]) -> None:
        """A restore has brought these, and nothing has run since."""
        self.begin(capture, capture)
        known = list(memory)
        for place in [(address, size) for address, size, _ in known]:
            region = self._regions.pop(place, None)
            if region is not None and self._pagemap is not None:
                self._regions[place] = region
                self._drop(place, region)
        self.watch((address, size) for address, size, _ in known)
        self.captured(capture, known)


def joined(runs: Iterable[tuple[int, int]]) -> Runs:
    """The runs in order, without gaps of nothing and overlaps."""
    made: Runs = []
    for start, end in sorted(run for run in runs if run[0] < run[1]):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], end))
        else:
            made.append((start, end))
    return made
