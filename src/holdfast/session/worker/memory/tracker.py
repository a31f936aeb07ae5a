"""Which bytes of a buffer changed since a capture that the host has.

Every doubt means that all of them did. Captures are numbered by their requests. What was found
dirty for a capture stays on the list until a later capture has become a checkpoint, so nothing is
lost when one fails on its way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from holdfast.session.worker.memory.mappings import Mappings
from holdfast.session.worker.memory.pagemap import PAGE, Pagemap, Runs

MOST = 1000  # regions at once: each costs the kernel two mappings, of which there are 65530
_HOT = 2  # captures in a row that find most of a region rewritten: watching it does not pay
_REST = 16  # captures for which such a region, or one of somebody else's memory, is left alone

Place = tuple[int, int]  # address and size


class Region(msgspec.Struct):  # a dataclass takes ten times as long to define
    """A buffer that is watched since a capture."""

    address: int
    size: int
    since: int
    dirty: dict[int, Runs] = {}  # found at which capture
    labels: dict[int, str] = {}  # what it was called in which capture
    hot: int = 0
    looks: int = 0  # that found something: memory that was copied before one of them may be old
    doubt: bool = False  # a look has begun that has not come to its end: all may have changed
    start: int = 0  # the beginning of its first page
    end: int = 0  # of its last one

    def __post_init__(self) -> None:
        self.start = self.address // PAGE * PAGE
        self.end = -(-(self.address + self.size) // PAGE) * PAGE

    @property
    def place(self) -> Place:
        return self.address, self.size


class Tracker:
    """Knows what changed, where the kernel can tell; else nothing is known."""

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self._pagemap: Pagemap | None = None
        self._mappings = Mappings()
        self._process = 0
        self._regions: dict[Place, Region] = {}
        self._resting: dict[Place, int] = {}  # until which capture
        self._unwatched: list[Place] = []  # what a copy of this process found, which cannot watch
        self._now = 0
        self._base = 0
        # In a copy of the process: how much was found in each region when it was made.
        self._before: dict[Place, int] | None = None

    @classmethod
    def off(cls) -> Tracker:
        """One that knows nothing."""
        return cls(enabled=False)

    @property
    def base(self) -> int:
        """What the host has."""
        return self._base

    def begin(self, capture: int, base: int) -> None:
        """A capture begins: look at everything that is watched. `base` is what the host has.

        A negative one means that the host wants nothing to be watched.
        """
        self._now, self._base = capture, base
        self._resting = {each: until for each, until in self._resting.items() if until > capture}
        if base < 0:
            self._regions.clear()
            self._pagemap = None  # the kernel forgets, too
            self._process = 0
            return
        if self._process != os.getpid():
            self._open()
        for region in [each for each in self._regions.values() if each.doubt]:
            self._drop(region)
        self._look_at_all()
        for region in list(self._regions.values()):
            self._judge(region)
        found, self._unwatched = self._unwatched, []
        self.watch(found)  # as far as it is there still

    def apart(self) -> None:
        """A copy of the process goes on with a capture: what it writes itself is found as well.

        Nothing was written to since the capture began. Memory that a record is made of may come to
        lie where an earlier capture had some, and which is free in the process itself.
        """
        regions, self._regions = self._regions, {}
        self._before = {each: len(r.dirty.get(self._now, ())) for each, r in regions.items()}
        self._open()
        for place, region in regions.items():
            if self._watches(region):
                self._regions[place] = region  # of all others, everything has to be sent

    def _watches(self, region: Region) -> bool:
        if self._pagemap is None:
            return False
        try:
            self._pagemap.watch(region.start, region.end)
        except OSError:
            return False
        return True

    def own_writes(self, place: Place) -> Runs | None:
        """Where a copy of the process wrote itself to memory that it handed over: there the process
        has other bytes. None when nobody can tell."""
        if self._before is None or place not in self._before:
            return []  # nothing is known of it in the process either
        region = self._regions.get(place)
        if region is None or region.doubt:
            return None
        return region.dirty.get(self._now, [])[self._before[place] :]

    def look_again(self) -> None:
        """Code has run since this capture began: what that wrote belongs to it, too."""
        if self._pagemap is not None and self._process == os.getpid():
            self._look_at_all()

    def looks(self, place: Place) -> int:
        """Tells a copy of some memory from one that was made when less was known."""
        region = self._regions.get(place)
        return 0 if region is None else region.looks

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

    def _look_at_all(self) -> None:
        for group in _groups(self._regions.values()):
            self._look(group, group[0].start, max(region.end for region in group), self._now)

    def _look(self, having: list[Region], start: int, end: int, capture: int) -> None:
        """What was written to between two addresses, for a capture and all regions that have any
        of these pages: a page is told only once."""
        assert self._pagemap is not None
        for region in having:
            region.doubt = True  # whatever is raised from here on, an interrupt for one
        try:
            found = self._pagemap.written(start, end)
        except OSError:  # some of it was freed, moved or replaced
            for region in having:
                self._drop(region)
            return
        for region in having:
            mine = [run for run in found if run[0] < region.end and run[1] > region.start]
            if mine:
                region.dirty.setdefault(capture, []).extend(mine)
                region.looks += 1
        for region in having:
            region.doubt = False

    def _judge(self, region: Region) -> None:
        """Forget what nobody will ask for, and a region that does not pay."""
        mostly = 2 * _length(region.dirty.get(self._now, [])) > region.end - region.start
        if region.dirty:
            region.dirty = {c: runs for c, runs in region.dirty.items() if c > self._base}
        if region.labels and min(region.labels) < self._base:
            region.labels = {c: label for c, label in region.labels.items() if c >= self._base}
            if not region.labels:  # the host's checkpoint has it no longer: it was freed
                self._drop(region)
                return
        region.hot = region.hot + 1 if mostly else 0
        if region.hot >= _HOT:
            self._resting[region.place] = self._now + _REST
            self._drop(region)

    def _drop(self, region: Region) -> None:
        """Watch it no longer, unless others have pages in common with it."""
        assert self._pagemap is not None
        del self._regions[region.place]
        if self._neighbours(region):
            return
        try:
            self._pagemap.forget(region.start, region.end)
        except OSError:
            return  # there is nothing left to forget

    def _neighbours(self, region: Region) -> list[Region]:
        """Those that have pages in common with it."""
        return [
            other
            for other in self._regions.values()
            if other.start < region.end and other.end > region.start
        ]

    def maps(self, files: Iterable[int]) -> None:
        """A restore maps these open files, which stay as they are."""
        self._mappings.fixed(files)

    def watch(self, places: Iterable[Place], brought: bool = False) -> None:
        """From this capture on; nothing has run since it began. `brought` by a restore, nobody else
        has it; and what was written to what it brought before belongs to the next capture."""
        news = self._now + 1 if brought else self._now
        if self._pagemap is None or self._process != os.getpid() or self._before is not None:
            return
        for place in places:
            if place in self._regions or len(self._regions) >= MOST:
                continue
            if place in self._resting:
                continue
            region = Region(*place, since=self._now)
            if not brought and not self._mappings.own(region.start, region.end):
                self._resting[place] = self._now + _REST  # it is looked at as a whole
                continue
            neighbours = self._neighbours(region)
            try:
                self._pagemap.watch(region.start, region.end, protect=not neighbours)
            except OSError:
                continue  # no room, or of a kind that the kernel cannot watch: the same
            self._regions[place] = region
            if neighbours:  # what is found now is news for them
                self._look([region, *neighbours], region.start, region.end, news)
                if brought:
                    region.dirty.clear()  # what it was filled with

    def changed(self, place: Place, label: str) -> Runs | None:
        """Offsets of what changed since the host's checkpoint; None when that is not known."""
        region = self._regions.get(place)
        if region is None or region.doubt or region.since > self._base:
            return None
        if region.labels.get(self._base) != label:
            return None
        if not region.dirty:
            return []
        address, size = place
        runs = [
            run for capture, found in region.dirty.items() if capture > self._base for run in found
        ]
        return joined((max(start - address, 0), min(end - address, size)) for start, end in runs)

    def captured(self, capture: int, memory: Iterable[tuple[int, int, str]]) -> None:
        """A capture has sent these: addresses, sizes and labels."""
        for address, size, label in memory:
            region = self._regions.get((address, size))
            if region is None:
                self._unwatched.append((address, size))
            elif region.since <= capture:
                region.labels[capture] = label

    def differs(self, capture: int, place: Place, runs: Runs) -> None:
        """A capture has other bytes there than this process: the next one has to bring them."""
        region = self._regions.get(place)
        if runs and region is not None:
            region.dirty.setdefault(capture + 1, []).extend(runs)

    def placed(self, address: int, size: int, label: str) -> None:
        """The restore that has begun has brought this, and nobody has written to it yet."""
        region = self._regions.get((address, size))
        if region is not None:
            self._drop(region)
        self.watch([(address, size)], brought=True)
        self.captured(self._now, [(address, size, label)])


def known_as(label: str, skew: int) -> str:
    """What memory is called here. An array may take over the address, the size and so the label
    of what was no array; but in the host's checkpoint that lies on its pages in another way."""
    return f"{label}+{skew}"


def _length(runs: Runs) -> int:
    return sum(end - start for start, end in runs)


def _groups(regions: Iterable[Region]) -> list[list[Region]]:
    """Regions that have pages in common, directly or through others, together."""
    groups: list[list[Region]] = []
    end = 0
    for region in sorted(regions, key=lambda each: each.start):
        if region.start < end:
            groups[-1].append(region)
        else:
            groups.append([region])
        end = max(end, region.end)
    return groups


def joined(runs: Iterable[tuple[int, int]]) -> Runs:
    """The runs in order, without gaps of nothing and overlaps."""
    made: Runs = []
    for start, end in sorted(run for run in runs if run[0] < run[1]):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], end))
        else:
            made.append((start, end))
    return made
