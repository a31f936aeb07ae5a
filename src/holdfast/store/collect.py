"""Collecting: giving back the space that nothing needs, beside writers and readers.

The order makes it safe. A volume is condemned first: from then on no commit may refer to it, and
writers that meant to store their chunks anew. Only then is it known for good which of its chunks
are needed; those are copied, the log says where they went, and the file goes when no operation is
left that began before that.

Only chunks that match their ids are copied. Where one can be read neither from a cache nor from its
volume nor from another one, its volume stays as it is, and the report names it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from msgspec.structs import replace

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Corrupt, NotFound, StorageFull
from holdfast.model.report import Problem
from holdfast.store import retention
from holdfast.store.backends.contract import Behind, VolumeInfo, hold_for_writing
from holdfast.store.chunks import workers
from holdfast.store.chunks.chunk import Location
from holdfast.store.chunks.index import mappable
from holdfast.store.chunks.packs import PackWriter
from holdfast.store.chunks.verified import VerifiedChunk
from holdfast.store.doubts import Doubts, damaged
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Catalogue, Record, id_bytes, id_text
from holdfast.store.log.entries import (
    Condemn,
    Disown,
    Drop,
    Entry,
    Label,
    Own,
    Relocate,
    Upto,
    encode_entry,
    split_names,
)
from holdfast.store.log.frames import Signed, signed_message
from holdfast.store.parts.contents import part_chunks

Progress = Callable[[int, int], None]

_WORTH_MOVING = 0.5  # a pack less alive than this is rewritten
_LONG_LOG = 4 * 1024 * 1024  # a log longer than this is folded in any case
_SHORT_LOG = 64 * 1024  # and one shorter than this is left alone
_BATCH = 256 * 1024  # bytes that a thread reads and verifies at a time


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What retention decided, for all subjects."""

    kept: tuple[tuple[Checkpoint, str], ...]
    removed: tuple[Checkpoint, ...]
    owned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """What a prune did, or would do. `pending_bytes` go when operations in progress are over,
    `log_bytes` when the log is folded: they are entries of what this prune removed."""

    kept: tuple[tuple[Checkpoint, str], ...]
    removed: tuple[Checkpoint, ...]
    reclaimed_bytes: int
    pending_bytes: int
    log_bytes: int = 0
    dry_run: bool = False
    problems: tuple[Problem, ...] = ()  # of the log; while it has any, nothing is removed
    damaged: tuple[Problem, ...] = ()  # volumes that stay, because not all in them can be read
    owned: tuple[str, ...] = ()  # subjects of which more would have gone, had nobody owned them


def plan(
    now: Catalogue,
    policy: retention.Policy,
    only: str | None,
    clock: datetime,
    owned: Mapping[str, str],
) -> PrunePlan:
    """Decide for each subject on its own. Of those that are `owned` by somebody else all stays:
    only the owner knows what it relies on."""
    groups: dict[str, list[Record]] = {}
    for record in now.all_records():
        if only is None or record.commit.subject == only:
            groups.setdefault(record.commit.subject, []).append(record)
    kept: list[tuple[Checkpoint, str]] = []
    removed: list[Checkpoint] = []
    left: list[str] = []
    for subject, records in groups.items():
        made = {id_text(record.id): record.checkpoint() for record in records}
        in_order = [(made[id_text(r.id)], r.commit.verb == "import") for r in records]
        times = retention.believable_times(in_order, clock)
        judged = [
            one if one.time == times[name] else replace(one, time=times[name])
            for name, one in made.items()
        ]
        head = now.heads.get(subject)
        decision = retention.decide(judged, policy, id_text(head) if head else None, clock)
        kept += [(made[one.id], why) for one, why in decision.kept]
        if decision.removed and subject in owned:
            left.append(subject)
            kept += [(made[one.id], f"owned by {owned[subject]}") for one in decision.removed]
        else:
            removed += [made[one.id] for one in decision.removed]
    return PrunePlan(tuple(kept), tuple(removed), tuple(left))


def entries(now: Catalogue, decided: PrunePlan) -> Counter[bytes]:
    """How many bytes of each volume are entries of what is to go."""
    found: Counter[bytes] = Counter()
    for one in decided.removed:
        frame = now.record(id_bytes(one.id) or b"").frame
        found[frame.origin] += len(frame.header) + frame.body_size
    return found


def estimate(ledger: Ledger, decided: PrunePlan, doubts: Doubts) -> PruneReport:
    """What executing the plan would free at least, without touching anything."""
    now = ledger.catalogue
    gone = {one.id for one in decided.removed}
    staying = {
        name
        for record in now.all_records()
        if id_text(record.commit.id) not in gone
        for names in now.volumes(record)
        for name in names
    }
    unneeded = [v for v in ledger.backend.volumes() if v.is_pack and v.name not in staying]
    return PruneReport(
        kept=decided.kept,
        removed=decided.removed,
        reclaimed_bytes=sum(volume.size for volume in unneeded),
        pending_bytes=0,
        log_bytes=entries(now, decided).total(),
        dry_run=True,
        problems=doubts.problems,
        owned=decided.owned,
    )


def execute(
    ledger: Ledger,
    decided: PrunePlan,
    dead: Counter[bytes],
    doubts: Doubts,
    progress: Progress | None = None,
) -> PruneReport:
    """Free what is dead, move what is alive out of what is mostly dead, fold the log. What the
    doubts are about is given up: whoever does not want that has asked them before. `dead` are the
    `entries` of what has gone, of which the report says how much is still there."""
    collector = _Collector(ledger, doubts, progress)
    # What is dead goes first, so that a full disk has room for what is moved.
    collector.condemn_dead()
    reclaimed, _ = collector.delete()
    collector.move_survivors()
    more, pending = collector.delete()
    left = {volume.name for volume in ledger.backend.volumes() if not volume.is_pack}
    return PruneReport(
        kept=decided.kept,
        removed=decided.removed,
        reclaimed_bytes=max(0, reclaimed + more - collector.rewritten_bytes),
        pending_bytes=pending,
        log_bytes=sum(size for name, size in dead.items() if name in left),
        problems=doubts.problems,
        damaged=tuple(
            Problem(where=f"volume {name.hex()}", what=what)
            for name, what in collector.damaged.items()
        ),
        owned=decided.owned,
    )


class _Collector:
    def __init__(self, ledger: Ledger, doubts: Doubts, progress: Progress | None = None) -> None:
        self._ledger = ledger
        self._doubts = doubts
        self._progress = progress
        self._chunks_of: dict[tuple[bytes, bytes], frozenset[bytes]] = {}
        self._abandoned: set[bytes] = set()  # packs of which nobody but their dead writers knew
        self.rewritten_bytes = 0
        self.damaged: dict[bytes, str] = {}  # volumes that stay, and why

    def condemn_dead(self) -> None:
        """Condemn the packs that no checkpoint needs, and those that dead writers left."""
        # In this order: a pack that is listed belongs to a writer that holds or has committed.
        packs = self._packs()
        alive = tuple(self._ledger.backend.active_nonces())
        now = self._ledger.refresh()
        dead = set(self._dead_packs(now)) - now.condemned.keys()
        left = {v.name for v in packs if not v.name.startswith(alive)} - now.condemned.keys()
        if self._doubts.spare_unnamed:
            left = set()
        self._abandoned = left - now.named
        if dead or self._abandoned:

            def build(now: Catalogue) -> tuple[Entry, bytes]:
                # Whoever was taken for dead, but has committed, is left alone.
                self._abandoned = left - now.named
                return _condemn(sorted(dead | self._abandoned), now)

            self._ledger.append(build)

    def move_survivors(self) -> None:
        """Condemn dead and mostly dead volumes, and give their live chunks a new home."""
        ledger = self._ledger
        hold = hold_for_writing(ledger.backend, ledger.catalogue.seq)
        try:
            now = ledger.refresh()
            sealed = self._seal_log()
            doomed = self._dead_packs(now) + self._sparse_packs(now) + sealed
            doomed = [name for name in doomed if name not in now.condemned]
            if doomed:
                ledger.append(lambda now: _condemn(doomed, now))
            unmoved = [name for name in [*ledger.catalogue.condemned] if self._is_unmoved(name)]
            if unmoved:
                self._relocate(unmoved, hold.nonce)
            if sealed:
                self._snapshot()
        finally:
            hold.release()

    def delete(self) -> tuple[int, int]:
        """Delete what nobody can need any more; returns bytes freed and bytes still waiting."""
        ledger = self._ledger
        # In this order: a hold that is taken after the look at them reads all that is known here,
        # and more.
        volumes = ledger.backend.volumes()
        now = ledger.refresh()
        if len(now.problems) > len(self._doubts.problems):
            raise damaged(now.problems)  # it came while we were at it
        live, seq = now.live_volumes(), now.seq
        ledger.backend.settle()
        oldest = ledger.backend.oldest_hold()
        freed = pending = 0
        for volume in volumes:
            if not volume.is_pack or volume.name in live:
                continue
            if volume.name in now.condemned:
                given_up = _given_up(now, volume.name)
                old = given_up <= seq and (oldest is None or oldest >= given_up)
                if old or volume.name in self._abandoned:
                    freed += ledger.backend.delete(volume.name)
                else:
                    pending += volume.size
        # A writer may refer to any segment that is not condemned, so only those can go. Those
        # that are not listed now begin behind `seq`.
        logs = {volume.name for volume in ledger.backend.volumes() if not volume.is_pack}
        needed = live | (logs - now.condemned.keys())
        return freed + ledger.backend.trim(seq, needed), pending

    # -- choosing

    def _dead_packs(self, now: Catalogue) -> list[bytes]:
        live = now.live_volumes()
        return [v.name for v in self._packs() if v.name in now.named and v.name not in live]

    def _sparse_packs(self, now: Catalogue) -> list[bytes]:
        live = now.live_volumes()
        candidates = [v for v in self._packs() if v.name in live and v.name not in now.condemned]
        if not candidates:
            return []
        wanted, unclear = self._wanted(now.all_records(), None)
        sparse = []
        for volume in candidates:
            if volume.name in unclear:
                self.damaged[volume.name] = unclear[volume.name]
                continue
            rows = self._ledger.library.rows(volume.name)
            needed = sum(place.stored for chunk, place in rows if chunk in wanted)
            if needed < _WORTH_MOVING * sum(place.stored for _, place in rows):
                sparse.append(volume.name)
        return sparse

    def _seal_log(self) -> list[bytes]:
        """Close the log's current segment when the log has grown long; returns all closed ones."""
        ledger = self._ledger
        logs = [v for v in ledger.backend.volumes() if not v.is_pack]
        # Folding leaves out what cannot be read, too.
        if not self._doubts.problems and not self._is_worth_folding(sum(v.size for v in logs)):
            return []
        try:
            return ledger.backend.seal()
        except Behind:
            return []  # busy just now; the next prune will do it

    def _is_worth_folding(self, size: int) -> bool:
        """Whether the log is long, or mostly of checkpoints that are gone."""
        frames = (record.frame for record in self._ledger.catalogue.all_records())
        needed = sum(len(frame.header) + frame.body_size for frame in frames)
        return size > _LONG_LOG or (size > _SHORT_LOG and needed < _WORTH_MOVING * size)

    def _packs(self) -> list[VolumeInfo]:
        return [v for v in self._ledger.backend.volumes() if v.is_pack]

    def _is_unmoved(self, name: bytes) -> bool:
        return name in self._ledger.catalogue.live_volumes()

    # -- moving

    def _relocate(self, volumes: list[bytes], nonce: bytes) -> None:
        ledger = self._ledger
        dependents = ledger.catalogue.dependents(volumes)
        wanted, unclear = self._wanted(dependents, set(volumes))
        writer = PackWriter(ledger.backend, nonce, ledger.cipher)
        homes: dict[bytes, bytes] = {}
        moves: dict[bytes, set[bytes]] = {}
        # What cannot be read for certain stays where it is.
        self.damaged.update((name, unclear[name]) for name in volumes if name in unclear)
        live = {
            volume: [row for row in ledger.library.rows(volume) if row[0] in wanted]
            for volume in volumes
            if volume not in unclear
        }
        total = sum(place.stored for rows in live.values() for _, place in rows)
        done = 0
        try:
            for volume, rows in live.items():
                try:
                    self._copy(writer, rows, homes)
                except (Corrupt, NotFound) as error:
                    self.damaged[volume] = str(error)  # another prune may find it mended
                else:
                    if rows:
                        moves[volume] = {homes[chunk] for chunk, _ in rows}
                done += sum(place.stored for _, place in rows)
                if self._progress is not None:
                    self._progress(done, total)
            writer.finish()
        except StorageFull as error:
            raise StorageFull(
                f"{error}, and the {total:,} bytes that stay have to be moved before more is freed",
                hint="what no policy wanted is gone already; make so much room, and prune again",
            ) from error
        finally:
            writer.discard()
        self.rewritten_bytes += writer.stored_bytes
        copied = {record.commit.id for record in dependents}
        for volume, targets in moves.items():
            move = _Move(volume, targets, copied)
            try:
                ledger.append(move.build)
            except _DependentError:
                continue  # what was copied is not all that is needed: the next prune will do it

    def _copy(
        self, writer: PackWriter, rows: list[tuple[bytes, Location]], homes: dict[bytes, bytes]
    ) -> None:
        """Copy the chunks of a volume that have no new home yet. Raises Corrupt for one that cannot
        be read; those before it have one then."""
        library = self._ledger.library

        def read(batch: list[tuple[bytes, Location]]) -> list[tuple[VerifiedChunk, bool]]:
            return [(library.verified(chunk, place), mappable(place)) for chunk, place in batch]

        left = _batches(row for row in dict(rows).items() if row[0] not in homes)
        with closing(workers.in_order(read, left, 2 * workers.count())) as batches:
            for content, aligned in chain.from_iterable(batches):
                homes[content.id] = writer.copy(content, aligned=aligned).volume

    def _wanted(
        self, records: Iterable[Record], volumes: set[bytes] | None
    ) -> tuple[set[bytes], dict[bytes, str]]:
        """The chunks these checkpoints need; given `volumes`, of the parts that touch them. And the
        volumes of checkpoints too damaged to tell, with what is wrong."""
        wanted: set[bytes] = set()
        unclear: dict[bytes, str] = {}
        for record in records:
            places = self._ledger.catalogue.volumes(record)
            try:
                chunks = self._chunks(record, places, volumes)
            except (Corrupt, NotFound) as error:
                why = f"checkpoint {record.checkpoint().short}: {error}"
                unclear.update((name, why) for names in places for name in names)
                continue
            wanted |= chunks
            # Whatever the reason: a volume is not given up while something in it is not found.
            if volumes is not None and not self._ledger.library.index.has_all(list(chunks)):
                why = f"checkpoint {record.checkpoint().short}: a chunk is missing"
                unclear.update((name, why) for names in places for name in names)
        return wanted, unclear

    def _chunks(
        self, record: Record, places: list[tuple[bytes, ...]], volumes: set[bytes] | None
    ) -> set[bytes]:
        wanted = {record.commit.parts_chunk} if record.commit.parts_chunk else set()
        for part in self._ledger.part_records(record):
            touched = {name for i in part.volumes for name in places[i]}
            if volumes is not None and not touched & volumes:
                continue
            key = (part.root, part.map)
            if key not in self._chunks_of:
                self._chunks_of[key] = frozenset(part_chunks(self._ledger.library, part))
            wanted |= self._chunks_of[key]
        return wanted

    def _snapshot(self) -> None:
        """Write the log's content up to now as one file without bodies."""
        ledger = self._ledger
        now = ledger.refresh()
        there = {volume.name for volume in ledger.backend.volumes()}
        frames = [record.frame for record in now.all_records()]
        frames += [f for f in now.others if _matters(ledger.entry_of(f), f.seq, now, there)]
        header = encode_entry(Upto(seq=now.seq, count=len(frames)))
        key_id, mac = ledger.keyring.sign(signed_message(now.seq, header))
        upto = Signed(seq=now.seq, key_id=key_id, mac=mac, header=header)
        in_order = sorted(frames, key=lambda frame: frame.seq)
        self.rewritten_bytes += ledger.backend.compact(upto, in_order)


def _batches(rows: Iterable[tuple[bytes, Location]]) -> Iterator[list[tuple[bytes, Location]]]:
    """Rows in lists that are worth handing to a thread."""
    batch: list[tuple[bytes, Location]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += row[1].stored
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _condemn(volumes: list[bytes], now: Catalogue) -> tuple[Entry, bytes]:
    return Condemn(volumes=b"".join(volumes), time=now.last_time + 1), b""


class _DependentError(Exception):
    """A checkpoint refers to a volume that nothing was to refer to any more."""


@dataclass(frozen=True, slots=True)
class _Move:
    """A volume, where its chunks went, and the checkpoints whose chunks were copied."""

    volume: bytes
    targets: set[bytes]
    copied: set[bytes]

    def build(self, now: Catalogue) -> tuple[Entry, bytes]:
        # A condemned volume gets no new dependents. If one had, it would lose its chunks here.
        if any(r.commit.id not in self.copied for r in now.dependents([self.volume])):
            raise _DependentError
        # Another collector may have taken us for dead.
        if any(target in now.condemned for target in self.targets):
            raise _DependentError
        to = b"".join(sorted(self.targets))
        return Relocate(volume=self.volume, to=to, time=moment.to_micros(moment.now())), b""


def _matters(entry: Entry, seq: int, now: Catalogue, there: set[bytes]) -> bool:
    """Whether an entry still says something about what exists, or may to who knows its key."""
    if seq in now.disbelieved:
        return True
    match entry:
        case Label():
            return entry.id in now.records
        case Relocate():
            return entry.volume in now.named or entry.volume in there
        case Condemn():
            # Also of what is gone, as long as something names it: whoever knows its chunks from
            # before must learn that they are no longer to be referred to.
            return any(name in there or name in now.named for name in split_names(entry.volumes))
        case Own():
            return now.owns(entry.subject, seq)
        case Drop() | Disown():
            return False  # what they ended is left out
    return True


def _given_up(now: Catalogue, volume: bytes) -> int:
    """The entry from which on nobody looks for anything in a condemned volume that is not live."""
    moved = [seq for seq, _ in now.relocations.get(volume, ())]
    # What was not moved died with its last checkpoint, which may have been after it was condemned.
    return max(now.condemned[volume], *(moved or [now.last_drop]))
