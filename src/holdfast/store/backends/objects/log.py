"""The log in a bucket: one object an entry, created if absent; folds, so that few are read."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Set

import msgspec

from holdfast.model.errors import Conflict, Corrupt, HoldfastError, NotFound
from holdfast.store.backends.contract import Behind, Tail, VolumeInfo
from holdfast.store.backends.objects import layout
from holdfast.store.backends.objects.bucket import Bucket, Piece
from holdfast.store.backends.objects.cache import Cache
from holdfast.store.backends.objects.layout import FoldName
from holdfast.store.log.frames import Damage, Frame, Signed

log = logging.getLogger("holdfast.store")

BUNDLE = 1000  # entries behind the last bundle after which another one is written
_GROWTH = 4  # a bundle takes in neighbours that are less than so many times as long
_HEADER = 16 * 1024  # bytes of an entry that are read first: nearly always all but its body
_WIDEST = 64  # entries asked for at once
_TRIES = 10


class _TrimmedError(Exception):
    """What was to be read was trimmed: begin with the newest snapshot."""


class ObjectLog:
    """Reads and appends. One thread at a time may use it; the backend sees to that."""

    def __init__(self, bucket: Bucket, cache: Cache, bundle: int = BUNDLE) -> None:
        self._bucket = bucket
        self._cache = cache
        self._bundle = bundle
        self._seq = 0
        self._begun = False
        self._segment: int | None = None  # of the last entry; None: the next one begins one
        self._bundles: list[FoldName] = []  # that were read
        self._waiting = 0  # no bundle is tried before so many entries behind this one
        self._loose: list[Frame] = []  # entries behind the last bundle
        self._sizes: dict[bytes, int] = {}  # of segments, as far as they are there

    def entries(self, after: int) -> Tail:
        for _ in range(_TRIES):
            try:
                if self._begun and after == self._seq:
                    return self._follow()
                return self._from_start(reset=after > 0)
            except (_TrimmedError, NotFound):
                # Folded by somebody else between our listing and our looking.
                self._begun = False
        raise Conflict("the log changes faster than it can be read", hint="try again")

    def append(self, signed: Signed) -> Frame:
        if not self._begun or signed.seq != self._seq + 1:
            raise Behind
        first = self._segment
        if first is None or signed.seq - first >= layout.SEGMENT:
            first = signed.seq
        data = layout.encode_entry_object(signed, first, secrets.token_bytes(16))
        key = layout.entry_key(signed.seq)
        if not self._bucket.create(key, data):
            raise Behind
        if signed.body:
            self._cache.add(key, data)
        frame = layout.decode_entry_object(signed.seq, data, len(data))
        assert frame is not None  # all of it is here
        self._take(frame)
        if signed.seq - max(self._bundled, self._waiting) >= self._bundle:
            # The entry is durable, so nothing that goes wrong from here on makes it fail: whoever
            # was told of an error would commit the same again. Readers do without the bundle.
            try:
                self._write_bundle()
            except HoldfastError as error:
                log.warning("the entries up to %d are not in one object: %s", signed.seq, error)
                self._waiting = signed.seq - self._bundle * 9 // 10  # again after a tenth as many
        return frame

    def seal(self) -> list[bytes]:
        """Begin a new segment with our next entry, which everybody who reads it goes on with."""
        if self._bucket.get(layout.entry_key(self._seq + 1)) is not None:
            raise Behind
        self._segment = None
        return list(self._sizes)

    def compact(self, upto: Signed, frames: Iterable[Frame]) -> int:
        name = FoldName.new(0, upto.seq)
        first = Frame(
            seq=upto.seq,
            key_id=upto.key_id,
            mac=upto.mac,
            header=upto.header,
            origin=bytes(16),
            body_offset=0,
            body_size=0,
        )
        bare = [msgspec.structs.replace(frame, body_offset=0, body_size=0) for frame in frames]
        return self._publish(name, [first, *bare])

    def trim(self, before: int, needed: Set[bytes]) -> int:
        """Replace entries that the newest snapshot covers, except those of the segments in
        `needed`, of which the caller knows up to entry `before`."""
        folds = self._folds()
        snapshot = _newest(folds)
        if snapshot is None or snapshot.last > before:
            return 0
        covered = snapshot.last
        there = [frame for frame in self._present(folds) if frame.seq <= covered]
        kept = [frame for frame in there if frame.origin in needed]
        staying = {frame.seq for frame in kept}
        going = [frame for frame in there if frame.seq not in staying]
        # In this order: who takes over from a trimmer that died finds the rest in the old bundles.
        freed = sum(self._bucket.many(self._replace, (frame.seq for frame in going)))
        old = [fold for fold in folds if fold.last <= covered and fold != snapshot]
        if going:
            self._publish(FoldName.new(1, covered), kept)
        else:
            old = [fold for fold in old if fold.is_snapshot]
        self._forget(old)
        self._begun = False
        self._sizes = {}
        self._measure([*kept, *(f for f in self._loose if f.seq > covered)])
        return freed

    def audit(self) -> list[Damage]:
        """Every fold and entry that does not check."""
        damage: list[Damage] = []
        folds = self._folds()
        for fold in folds:
            try:
                self._fold(fold, cached=False)
            except NotFound:
                continue  # replaced while we looked
            except HoldfastError as error:
                damage.append(Damage(fold.key, 0, 0, False, str(error)))
        end = max((b.last for b in layout.cover(f for f in folds if not f.is_snapshot)), default=0)
        while True:
            pieces = self._pieces(range(end + 1, end + 1 + _WIDEST))
            for piece in pieces:
                if piece is None:
                    return damage
                end += 1
                if piece.data != layout.TRIMMED:
                    damage += self._decode(end, piece)[1]

    def volumes(self) -> list[VolumeInfo]:
        """The segments, as far as the log was read."""
        return [VolumeInfo(name, size, False) for name, size in self._sizes.items()]

    def read(self, first: int, offset: int, size: int) -> bytes:
        """Bytes of a segment."""
        seq, at = layout.place_in_segment(first, offset)
        key = layout.entry_key(seq)
        data = self._cache.read(key)
        if data is None:
            data = self._bucket.get(key)  # whole, as its neighbours will be asked for next
            if data is None or data == layout.TRIMMED:
                raise NotFound(f"entry {seq} of the log is not in this store any more")
            self._cache.add(key, data)
        found = data[at : at + size]
        if len(found) != size:
            raise Corrupt(f"entry {seq} ends before byte {at + size}", where=key)
        return found

    def forget(self, first: int, offset: int) -> None:
        """Drop the cached copy of an entry."""
        self._cache.drop(layout.entry_key(layout.place_in_segment(first, offset)[0]))

    # -- reading

    @property
    def _bundled(self) -> int:
        return self._bundles[-1].last if self._bundles else 0

    def _from_start(self, reset: bool) -> Tail:
        damage: list[Damage] = []
        snapshot, fetched = self._fetch_folds(damage)
        base = snapshot.last if snapshot else 0
        said = fetched[snapshot.key] if snapshot else []
        found = self._joined(fetched)
        self._seq, self._segment, self._loose, self._sizes = self._bundled, None, [], {}
        self._measure(found)
        if found and found[-1].seq == self._seq:
            self._segment = layout.segment_first(found[-1].origin)
        self._begun = True
        tail = self._follow(through=base)
        found += tail.frames
        newer = [frame for frame in found if frame.seq > base] if base else found
        # Bodies are still there where nothing was trimmed; others may refer to those that the
        # snapshot left out, too.
        bodies = {f.seq: f for f in found if f.seq <= base and f.body_size} if base else {}
        frames = [bodies.pop(frame.seq, frame) for frame in said] + newer
        self._seq = max(self._seq, base)
        damage += tail.damage
        return Tail(frames, reset or bool(snapshot), base, list(bodies.values()), damage)

    def _joined(self, fetched: dict[str, list[Frame]]) -> list[Frame]:
        """The frames of the bundles that were read, in order, each once."""
        found: list[Frame] = []
        for bundle in self._bundles:
            frames, end = fetched[bundle.key], found[-1].seq if found else 0
            overlaps = bool(frames) and frames[0].seq <= end
            found += [frame for frame in frames if frame.seq > end] if overlaps else frames
        return found

    def _fetch_folds(self, damage: list[Damage]) -> tuple[FoldName | None, dict[str, list[Frame]]]:
        """The newest snapshot and the bundles to begin with; does without those that are damaged,
        since the entries themselves may still be there."""
        folds = self._folds()
        fetched: dict[str, list[Frame]] = {}
        while True:
            snapshot = _newest(folds)
            self._bundles = layout.cover(fold for fold in folds if not fold.is_snapshot)
            wanted = [*self._bundles, *([snapshot] if snapshot else [])]
            missing = [fold for fold in wanted if fold.key not in fetched]
            bad = []
            for fold, found in zip(
                missing, self._bucket.many(self._try_fold, missing), strict=True
            ):
                if isinstance(found, Corrupt):
                    damage.append(Damage(fold.key, 0, 0, False, str(found)))
                    bad.append(fold)
                else:
                    fetched[fold.key] = found
            if not bad:
                return snapshot, fetched
            folds = [fold for fold in folds if fold not in bad]

    def _try_fold(self, name: FoldName) -> list[Frame] | Corrupt:
        try:
            return self._fold(name)
        except Corrupt as error:
            return error

    def _follow(self, through: int = 0) -> Tail:
        """Read on until an entry is missing. Up to `through` a snapshot speaks, so that trimmed
        ones there are no news."""
        frames: list[Frame] = []
        damage: list[Damage] = []
        width = 1 if not through else _WIDEST
        while True:
            pieces = self._pieces(range(self._seq + 1, self._seq + 1 + width))
            for piece in pieces:
                if piece is None:
                    return Tail(frames, damage=damage)
                seq = self._seq + 1
                if piece.data == layout.TRIMMED:
                    if seq > through:
                        raise _TrimmedError
                    self._seq, self._segment = seq, None
                    continue
                frame, bad = self._decode(seq, piece)
                damage += bad
                if frame is None:
                    # Its number is taken all the same.
                    self._seq, self._segment = seq, None
                else:
                    self._take(frame)
                    frames.append(frame)
            width = min(width * 4, _WIDEST)

    def _take(self, frame: Frame) -> None:
        self._seq = frame.seq
        self._segment = layout.segment_first(frame.origin)
        self._loose.append(frame)
        self._measure([frame])

    def _measure(self, frames: Iterable[Frame]) -> None:
        sizes = self._sizes
        for frame in frames:
            origin = frame.origin
            sizes[origin] = sizes.get(origin, 0) + len(frame.header) + frame.body_size

    def _pieces(self, seqs: Iterable[int]) -> list[Piece | None]:
        keys = [layout.entry_key(seq) for seq in seqs]
        return self._bucket.many(lambda key: self._bucket.beginning(key, _HEADER), keys)

    def _decode(self, seq: int, piece: Piece) -> tuple[Frame | None, list[Damage]]:
        key = layout.entry_key(seq)
        try:
            frame = layout.decode_entry_object(seq, piece.data, piece.total)
            if frame is None:
                whole = self._bucket.get(key) or b""
                frame = layout.decode_entry_object(seq, whole, len(whole))
        except HoldfastError as error:
            return None, [Damage(key, 0, piece.total, False, str(error))]
        return frame, []

    # -- folds

    def _folds(self) -> list[FoldName]:
        names = [FoldName.parse(one.key) for one in self._bucket.listed("folds")]
        return [name for name in names if name is not None]

    def _fold(self, name: FoldName, cached: bool = True) -> list[Frame]:
        if cached and (data := self._cache.read(name.key)) is not None:
            try:
                return layout.decode_fold(name, data)
            except Corrupt:
                self._cache.drop(name.key)
        data = self._bucket.get(name.key)
        if data is None:
            raise NotFound(f"{name.key} is gone")
        frames = layout.decode_fold(name, data)
        self._cache.add(name.key, data)
        return frames

    def _publish(self, name: FoldName, frames: list[Frame]) -> int:
        data = layout.encode_fold(name, frames)
        self._bucket.put(name.key, data)
        self._cache.add(name.key, data)
        return len(data)

    def _forget(self, folds: Iterable[FoldName]) -> None:
        for fold in folds:
            self._bucket.delete(fold.key)
            self._cache.drop(fold.key)

    def _write_bundle(self) -> None:
        """Put the loose entries into one object, with neighbours that are not much longer."""
        frames, first = self._loose, self._bundled + 1
        left, taken = [*self._bundles], []
        try:
            while left and _length(left[-1]) < _GROWTH * (self._seq - first + 1):
                neighbour = left[-1]
                before = [f for f in self._fold(neighbour) if f.seq < first]
                frames, first = [*before, *frames], neighbour.first
                taken.append(left.pop())
        except (NotFound, Corrupt):
            self._begun = False  # somebody else was at it: look anew, and leave it to the next one
            return
        name = FoldName.new(first, self._seq)
        self._publish(name, frames)
        self._bundles = [*left, name]
        self._loose = []
        self._forget(taken)

    def _present(self, folds: list[FoldName]) -> list[Frame]:
        """The entries that were not trimmed, as far as the log was read."""
        bundles = layout.cover(fold for fold in folds if not fold.is_snapshot)
        found = {f.seq: f for bundle in bundles for f in self._fold(bundle)}
        found.update({frame.seq: frame for frame in self._loose})
        return [found[seq] for seq in sorted(found)]

    def _replace(self, seq: int) -> int:
        """Trim one entry; returns the bytes freed."""
        key = layout.entry_key(seq)
        size = self._bucket.size(key) or 0
        if size <= len(layout.TRIMMED):
            return 0
        self._bucket.put(key, layout.TRIMMED)
        self._cache.drop(key)
        return size - len(layout.TRIMMED)


def _newest(folds: Iterable[FoldName]) -> FoldName | None:
    snapshots = [fold for fold in folds if fold.is_snapshot]
    return max(snapshots, key=lambda fold: fold.last, default=None)


def _length(bundle: FoldName) -> int:
    return bundle.last - bundle.first + 1
