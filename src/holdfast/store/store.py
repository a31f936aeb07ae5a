"""The store's face: drafts in, checkpoints out, heads moved. Blocking and thread-safe."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, cast

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint, HeadMove, Manifest
from holdfast.model.errors import (
    BadInput,
    Denied,
    NotFound,
    UsageError,
    from_os_error,
)
from holdfast.model.owner import Owner
from holdfast.model.report import Verification
from holdfast.model.subject import KINDS, Kind, Subject
from holdfast.store import (
    collect,
    comparison,
    doubts,
    references,
    retention,
    together,
    usage,
    verifying,
)
from holdfast.store.backends.contract import Backend
from holdfast.store.backends.traffic import Traffic
from holdfast.store.changes import Changes
from holdfast.store.changes import since as changes_since
from holdfast.store.cipher import PLAIN, Cipher
from holdfast.store.draft import Draft
from holdfast.store.keys import Keyring
from holdfast.store.leases import TTL, Lease, Leases, Right
from holdfast.store.ledger import Ledger
from holdfast.store.log.catalogue import Catalogue, Record, id_bytes
from holdfast.store.log.entries import (
    Drop,
    Entry,
    Label,
    Move,
    Verb,
)
from holdfast.store.parts.mapping import Mapping as PartMapping
from holdfast.store.parts.mapping import map_part
from holdfast.store.parts.part import PartRecord
from holdfast.store.parts.streams import PartStream
from holdfast.store.parts.structure import read_value
from holdfast.store.transfer import copying, exporting, importing
from holdfast.store.transfer.copying import CopyReport
from holdfast.store.transfer.exporting import ExportReport
from holdfast.store.transfer.importing import ImportReport
from holdfast.store.usage import Usage

Reference = str | Checkpoint
List = list  # inside the class, `list` is the verb
Progress = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectSummary:
    """A subject and where it stands."""

    subject: Subject
    head: Checkpoint | None
    count: int
    time: datetime
    size_bytes: int


class Store:
    """Checkpoints of any number of subjects, in one place."""

    def __init__(self, backend: Backend, keyring: Keyring, cipher: Cipher = PLAIN) -> None:
        self._own_ledger = Ledger(backend, keyring, cipher)
        self._own_leases = Leases(self._own_ledger)
        self._process = os.getpid()

    @property
    def _ledger(self) -> Ledger:
        if self._process != os.getpid():
            # In a forked child: a thread of the parent may have held a lock, or have been in the
            # middle of something.
            old = self._own_ledger
            self._own_ledger = Ledger(old.backend.reopened(), old.keyring, old.cipher)
            self._process = os.getpid()
        return self._own_ledger

    @property
    def _leases(self) -> Leases:
        ledger = self._ledger
        if self._own_leases.ledger is not ledger:
            self._own_leases = Leases(ledger)
        return self._own_leases

    @property
    def url(self) -> str:
        return self._ledger.backend.url

    def declare(self) -> None:
        """Let the log of a new encrypted store say what it is, before anybody writes plaintext."""
        self._ledger.declare()

    @property
    def encrypted(self) -> bool:
        """Whether what it holds is unreadable without its key."""
        return self._ledger.cipher.seals

    @property
    def traffic(self) -> Traffic | None:
        """What went over the network so far; None where the store is on this machine."""
        return self._ledger.backend.traffic

    def __repr__(self) -> str:
        return f"<Store {self.url}>"

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def refresh(self) -> None:
        """Take in what others wrote; every other method does so by itself."""
        self._ledger.refresh()

    def close(self) -> None:
        self._ledger.backend.close()

    # -- writing

    def draft(
        self,
        subject: Subject | str,
        parent: Reference | None = "head",
        *,
        reason: str = "manual",
        stage: str | None = None,
        tags: Mapping[str, str] | None = None,
        new: bool = False,
        aside: bool = False,
        lease: Right | None = None,
    ) -> Draft:
        """Begin a checkpoint of a subject, by default on top of its head. With `new` it is a fork:
        `commit` raises Conflict when the subject has come into being meanwhile. With `aside` the
        head stays where it is, until `move_heads` moves several at once. Raises Owned when
        somebody else has a lease of the subject; `commit` raises LeaseLost when we had it."""
        who = _subject(subject)
        now = self._ledger.refresh()
        fence = self._right(str(who), lease)
        if parent == "head":
            base = now.head(str(who))
        else:
            base = None if parent is None else references.resolve(now, parent)
        verb: Verb = "fork" if new else "aside" if aside else "checkpoint"
        return Draft(
            self._ledger,
            who,
            base,
            reason=reason,
            stage=stage,
            tags=tags or {},
            verb=verb,
            fence=fence,
        )

    def lease(
        self,
        subject: Subject | str,
        *,
        owner: str | None = None,
        ttl: float = TTL,
        url: str | None = None,
        wait: float = 0.0,
    ) -> Lease:
        """Become the owner of a subject, who alone may advance it. In a `with` block the lease
        renews itself. Raises Owned when somebody else is the owner for longer than `wait` seconds;
        where one cannot see at once whether an owner lives, its renewal is waited for."""
        return self._leases.take(str(_subject(subject)), name=owner, ttl=ttl, url=url, wait=wait)

    def owner(self, subject: Subject | str) -> Owner | None:
        """Who has the lease of a subject now."""
        return self._leases.owner(str(_subject(subject)))

    def seal(self, message: bytes) -> str:
        """A proof for others with our key that a message comes from one of us; "" without a key."""
        return self._ledger.keyring.note(message)

    def is_sealed(self, seal: str, message: bytes) -> bool:
        """Whether somebody with a key that we know sealed a message."""
        return self._ledger.keyring.accepts_note(seal, message)

    def _right(self, subject: str, lease: Right | None) -> int:
        """The token to state when advancing a subject; 0 where it has no owner."""
        if lease is None:
            self._leases.make_way(subject)
            return 0
        lease.check()
        if lease.subject != subject:
            raise UsageError(f"the lease is for {lease.subject}, not for {subject}")
        return lease.token

    # -- looking

    def list(
        self,
        subject: Subject | str | None = None,
        kind: Kind | None = None,
        limit: int | None = None,
        *,
        after: int = 0,
    ) -> list[Checkpoint]:
        """Checkpoints, newest first; nothing but the log is read.

        `after` is the `sequence` of one that is known: only later ones are listed.
        """
        who = None if subject is None else str(_subject(subject))
        found: list[Checkpoint] = []
        for record in self._ledger.refresh().newest_first(who):
            if limit is not None and len(found) >= limit:
                break
            if record.frame.seq <= after:
                break
            if kind is not None and not record.commit.subject.startswith(f"{kind}/"):
                continue
            found.append(record.checkpoint())
        return found

    def count(self, subject: Subject | str | None = None) -> int:
        """How many checkpoints there are, of one subject or in all."""
        now = self._ledger.refresh()
        if subject is None:
            return len(now.records)
        return len(now.lines.get(str(_subject(subject)), ()))

    def subjects(self) -> List[SubjectSummary]:
        """Every subject that has a checkpoint, the latest touched first."""
        now = self._ledger.refresh()
        groups: dict[str, list[Record]] = {}
        for record in now.all_records():
            groups.setdefault(record.commit.subject, []).append(record)
        summaries = []
        for name, records in groups.items():
            head = now.head(name)
            summaries.append(
                SubjectSummary(
                    subject=Subject.parse(name),
                    head=head.checkpoint() if head else None,
                    count=len(records),
                    time=_last_touched(now, name, records),
                    size_bytes=(head or records[-1]).commit.size,
                )
            )
        return sorted(summaries, key=lambda summary: summary.time, reverse=True)

    def resolve(self, reference: Reference) -> Checkpoint:
        """The checkpoint that an id, a short id, a subject, an ancestor or a tag means."""
        return references.resolve(self._ledger.refresh(), reference).checkpoint()

    def show(self, reference: Reference) -> Manifest:
        """A checkpoint and its parts."""
        record = references.resolve(self._ledger.refresh(), reference)
        parts = tuple(part.value() for part in self._ledger.part_records(record))
        return Manifest(checkpoint=record.checkpoint(), parts=parts)

    def head(self, subject: Subject | str) -> Checkpoint | None:
        record = self._ledger.refresh().head(str(_subject(subject)))
        return record.checkpoint() if record else None

    def history(self, subject: Subject | str) -> List[HeadMove]:
        """How a subject's head moved, oldest first."""
        return self._ledger.refresh().moves(str(_subject(subject)))

    @property
    def sequence(self) -> int:
        """The log's last entry, as far as it is known here."""
        return self._ledger.catalogue.seq

    def changes(self, since: int) -> Changes:
        """What happened after the log's entry `since`, for whoever shows the store as it is."""
        return changes_since(self._ledger, since)

    # -- reading

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
        with self._holding():
            record = self._readable(reference, part, trust)
            if record.split != "structure":
                raise UsageError(
                    f"part {part!r} is bytes, not a value", hint="use open() or read()"
                )
            return read_value(record.root, ledger.library.get, ledger.library.get_many)

    def map(
        self,
        reference: Reference,
        part: str,
        *,
        writable: bool = False,
        verify: Literal["background", "first"] = "background",
        trust: bool = False,
    ) -> PartMapping:
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

    def _readable(self, reference: Reference, part: str, trust: bool) -> PartRecord:
        record = references.resolve(self._ledger.refresh(), reference)
        _check_trust(record, trust)
        return self._ledger.part_record(record, part)

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """Nothing that a reader may need is deleted inside this block."""
        hold = self._ledger.backend.hold(self._ledger.catalogue.seq)
        try:
            yield
        finally:
            hold.release()

    # -- moving heads

    def restore(
        self, reference: Reference, *, trust: bool = False, lease: Right | None = None
    ) -> Checkpoint:
        """Move the head of a checkpoint's subject to it."""
        found = references.resolve(self._ledger.refresh(), reference)
        _check_trust(found, trust)
        return self._move(found, "restore", self._right(found.commit.subject, lease))

    def rollback(
        self,
        subject: Subject | str,
        to: Reference | None = None,
        *,
        trust: bool = False,
        lease: Right | None = None,
    ) -> Checkpoint:
        """Go back to the head's parent, or to a given checkpoint: a new one of the same content."""
        name = str(_subject(subject))
        now = self._ledger.refresh()
        head = now.head(name)
        target = (
            references.rollback_target(now, name) if to is None else references.resolve(now, to)
        )
        if target.commit.subject != name:
            raise BadInput(
                f"{target.commit.subject} is another subject than {name}",
                hint="fork takes a checkpoint into a new subject",
            )
        _check_trust(target, trust)
        return self._copy(
            target,
            Subject.parse(name),
            head,
            "rollback",
            rollback_of=target.commit.id,
            lease=lease,
        )

    def fork(
        self,
        reference: Reference,
        name: str,
        *,
        trust: bool = False,
        lease: Right | None = None,
    ) -> Checkpoint:
        """Begin a new subject of the same kind with the content of a checkpoint."""
        now = self._ledger.refresh()
        source = references.resolve(now, reference)
        _check_trust(source, trust)
        kind = Subject.parse(source.commit.subject).kind
        first, slash, rest = name.partition("/")
        if slash and first in KINDS and first != kind:
            raise BadInput(f"a {kind} cannot be forked into a {first}", hint=f"{kind}/{rest}")
        subject = Subject(kind, name.removeprefix(f"{kind}/"))
        return self._copy(source, subject, source, "fork", lease=lease)

    def undo(self, subject: Subject | str, *, lease: Right | None = None) -> HeadMove:
        """Take the last move of a subject's head back; undoing twice does it again."""
        name = str(_subject(subject))
        self._ledger.refresh()
        fence = self._right(name, lease)

        def build(now: Catalogue) -> tuple[Entry, bytes]:
            now.check_right(name, fence)
            steps = now.steps.get(name)
            if not steps:
                raise NotFound(f"there is no subject {name}")
            last = steps[-1]
            if last.before is not None:
                now.record(last.before)
            move = Move(
                subject=name,
                before=last.after,
                after=last.before,
                verb="undo",
                time=_tick(now),
                fence=fence,
            )
            return move, b""

        return self._ledger.append(build).steps[name][-1].move(name)

    def move_heads(
        self,
        *which: Reference,
        verb: together.Verb = "restore",
        leases: Iterable[Lease] = (),
        trust: bool = False,
    ) -> tuple[Checkpoint, ...]:
        """Move the heads of several subjects at once, each to one of its checkpoints: all of them
        move or none. Raises NotFound, and Owned or LeaseLost for any of them."""
        now = self._ledger.refresh()
        targets = [references.resolve(now, one) for one in which]
        for target in targets:
            _check_trust(target, trust)
        held = {lease.subject: lease for lease in leases}
        names = [target.commit.subject for target in targets]
        fences = {name: self._right(name, held.get(name)) for name in names}
        return together.move_heads(self._ledger, targets, fences, verb)

    def _move(self, target: Record, verb: Verb, fence: int) -> Checkpoint:
        name = target.commit.subject

        def build(now: Catalogue) -> tuple[Entry, bytes]:
            now.check_right(name, fence)
            now.record(target.commit.id)
            move = Move(
                subject=name,
                before=now.heads.get(name),
                after=target.commit.id,
                verb=verb,
                time=_tick(now),
                fence=fence,
            )
            return move, b""

        return self._ledger.append(build).record(target.commit.id).checkpoint()

    def _copy(
        self,
        source: Record,
        subject: Subject,
        parent: Record | None,
        verb: Verb,
        rollback_of: bytes | None = None,
        lease: Right | None = None,
    ) -> Checkpoint:
        """A checkpoint with the content of another one; stores nothing but its entry."""
        short = source.checkpoint().short
        reason = (
            f"rollback to {short}" if verb == "rollback" else f"fork of {source.commit.subject}"
        )
        with Draft(
            self._ledger,
            subject,
            parent,
            reason=reason,
            stage=source.commit.stage,
            tags={},
            verb=verb,
            rollback_of=rollback_of,
            fence=self._right(str(subject), lease),
        ) as draft:
            draft.keep_all(source)
            return draft.commit()

    # -- labels

    def tag(self, reference: Reference, name: str, value: str = "") -> Checkpoint:
        """Give a checkpoint a name; a tag's newest holder is what the name means."""
        references.check_tag(name)
        return self._label(reference, set_tags={name: value})

    def untag(self, reference: Reference, name: str) -> Checkpoint:
        """Take a name away; raises NotFound when the checkpoint does not have it."""
        found = self.resolve(reference)
        if name not in found.tags:
            has = ", ".join(sorted(found.tags)) or "no tags"
            raise NotFound(f"checkpoint {found.short} has no tag {name!r}", hint=f"it has {has}")
        return self._label(found, unset=(name,))

    def pin(self, reference: Reference) -> Checkpoint:
        """Keep a checkpoint whatever retention says."""
        return self._label(reference, pinned=True)

    def unpin(self, reference: Reference) -> Checkpoint:
        return self._label(reference, pinned=False)

    def _label(
        self,
        reference: Reference,
        *,
        set_tags: dict[str, str] | None = None,
        unset: tuple[str, ...] = (),
        pinned: bool | None = None,
    ) -> Checkpoint:
        found = references.resolve(self._ledger.refresh(), reference).commit.id

        def build(now: Catalogue) -> tuple[Entry, bytes]:
            now.record(found)
            label = Label(id=found, set=set_tags or {}, unset=unset, pinned=pinned, time=_tick(now))
            return label, b""

        return self._ledger.append(build).record(found).checkpoint()

    # -- letting go

    def delete(self, *which: Reference, lease: Right | None = None) -> List[Checkpoint]:
        """Drop checkpoints. A head that goes moves to its nearest ancestor that stays."""
        now = self._ledger.refresh()
        doomed = {references.resolve(now, one).commit.id for one in which}
        removed = [now.record(one).checkpoint() for one in doomed]
        fences = {str(one.subject): 0 for one in removed}
        for name in fences:
            fences[name] = self._right(name, lease)
        self._drop(doomed, fences)
        return removed

    def prune(
        self,
        keep: retention.Policy | None = None,
        subject: Subject | str | None = None,
        *,
        dry_run: bool = False,
        accept_loss: bool = False,
        progress: Progress | None = None,
    ) -> collect.PruneReport:
        """Apply a retention policy to each subject, then give back the space nothing needs.

        Raises Corrupt when the log is damaged: what cannot be read may have been a pin, or have
        named what now seems to be dead. `accept_loss` gives that up and folds the damage away.
        `progress` is told of the bytes that are moved out of what is mostly dead.
        """
        only = None if subject is None else str(_subject(subject))
        policy = keep or retention.DEFAULT
        found = doubts.look(self._ledger)
        plan = collect.plan(self._ledger.catalogue, policy, only, moment.now())
        if dry_run:
            return collect.estimate(self._ledger, plan, found)
        if not accept_loss:
            found.refuse()

        def build(now: Catalogue) -> tuple[Entry, bytes]:
            # Decided anew on each try: a pin or a restore that came first counts.
            nonlocal plan
            plan = collect.plan(now, policy, only, moment.now())
            doomed = tuple(cast(bytes, id_bytes(one.id)) for one in plan.removed)
            return Drop(ids=doomed, time=_tick(now)), b""

        if plan.removed:
            self._ledger.append(build)
        return collect.execute(self._ledger, plan, found, progress)

    def _drop(self, doomed: set[bytes], fences: Mapping[str, int]) -> None:
        def build(now: Catalogue) -> tuple[Entry, bytes]:
            # No head may point to what is gone. It is seen to here, one entry at a time, because
            # others move heads and drop checkpoints, too.
            for subject, fence in fences.items():
                now.check_right(subject, fence)
                if (head := now.heads.get(subject)) in doomed:
                    move = Move(
                        subject=subject,
                        before=head,
                        after=references.nearest_left(now, subject, doomed),
                        verb="delete",
                        time=_tick(now),
                        fence=fence,
                    )
                    return move, b""
            still = tuple(one for one in sorted(doomed) if one in now.records)
            return Drop(ids=still, time=_tick(now)), b""

        now = self._ledger.catalogue
        while any(one in now.records for one in doomed):
            now = self._ledger.append(build)

    # -- carrying elsewhere

    def export(
        self,
        reference: Reference,
        target: str | os.PathLike[str] | BinaryIO,
        *,
        ancestors: bool = False,
        replace: bool = True,
        progress: Progress | None = None,
    ) -> ExportReport:
        """Write a checkpoint, and with `ancestors` all it descends from, to a file or a stream that
        any store can import. A file appears when it is complete."""
        hold = self._ledger.backend.hold(self._ledger.catalogue.seq)
        try:
            record = references.resolve(self._ledger.refresh(), reference)
            if not isinstance(target, str | os.PathLike):
                return exporting.export(self._ledger, record, target, ancestors, progress)
            with exporting.new_file(Path(target), replace=replace) as file:
                return exporting.export(self._ledger, record, file, ancestors, progress)
        finally:
            hold.release()

    def import_(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        *,
        trust: bool = False,
        progress: Progress | None = None,
    ) -> Checkpoint:
        """Take in what `export` wrote, from a file or a stream; gives the checkpoint it is about.

        Everything is verified first; when something is wrong, nothing is taken in. A checkpoint
        that an unknown key has signed stays foreign, unless `trust` vouches for it.
        """
        return self.import_archive(source, trust=trust, progress=progress).checkpoint

    def import_archive(
        self,
        source: str | os.PathLike[str] | BinaryIO,
        *,
        trust: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Like `import_`, and tells what came; with `dry_run`, what would come."""
        with ExitStack() as stack:
            if isinstance(source, str | os.PathLike):
                try:
                    source = stack.enter_context(Path(source).open("rb"))
                except OSError as error:
                    raise from_os_error(error, "reading the archive") from error
            if dry_run:
                return importing.examine(self._ledger, source, progress)
            return importing.import_archive(self._ledger, source, trust=trust, progress=progress)

    def copy_to(
        self,
        other: Store,
        subject: Subject | str | None = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> CopyReport:
        """Bring another store up to date with this one, or with one subject of it. Only chunks that
        it lacks are carried over; nothing is removed there."""
        only = None if subject is None else str(_subject(subject))
        return copying.copy(self._ledger, other._ledger, only, dry_run=dry_run, progress=progress)

    # -- trusting and comparing

    def usage(self) -> Usage:
        """What the store holds and what that takes on disk."""
        return usage.measure(self._ledger)

    def verify(self, deep: bool = False, progress: Progress | None = None) -> Verification:
        """Check that everything the log promises is there; `deep` reads every byte."""
        return verifying.verify(self._ledger, deep, progress)

    def diff(self, a: Reference, b: Reference, *, trust: bool = False) -> comparison.Diff:
        """What changed from one checkpoint to another."""
        now = self._ledger.refresh()
        before, after = references.resolve(now, a), references.resolve(now, b)
        _check_trust(before, trust)
        _check_trust(after, trust)
        return comparison.diff(self._ledger, before, after)


def _subject(subject: Subject | str) -> Subject:
    return subject if isinstance(subject, Subject) else Subject.parse(subject)


def _last_touched(now: Catalogue, name: str, records: list[Record]) -> datetime:
    """When a subject's head last moved; one whose checkpoints were only imported has none yet."""
    steps = now.steps.get(name)
    last = steps[-1].time if steps else max(record.commit.time for record in records)
    return moment.from_micros(last)


def _tick(now: Catalogue) -> int:
    return now.next_time(moment.now())


def _check_trust(record: Record, trust: bool) -> None:
    if record.foreign and not trust:
        raise Denied(
            f"checkpoint {record.checkpoint().short} was signed by a key that is not known here"
            f" ({record.frame.key_id.hex()})",
            hint="import the key (`holdfast key import`), or say --trust if you trust its origin",
        )
