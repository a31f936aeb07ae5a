"""A session's past: the store, what stays in memory, and the session's own line through both.

Everything here blocks; the session calls it from threads, one call at a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, HoldfastError, NotFound, UsageError
from holdfast.model.fault_points import fault_point
from holdfast.model.subject import Subject
from holdfast.protocol.session_messages import AheadMessage
from holdfast.session import checkpoints, checks
from holdfast.session.ahead import Ahead, Begun, Opened
from holdfast.session.arriving import Coming
from holdfast.session.captured import Captured
from holdfast.session.checkpoints import Reference, SessionCheckpoint, Stored
from holdfast.session.line import Line
from holdfast.session.memory import Memories
from holdfast.session.structures import Structures
from holdfast.store import Store, open_store, retention
from holdfast.store.leases import Lease, OnLost
from holdfast.store.parts.layouts import Layouts

IN_MEMORY = 10 << 20  # a checkpoint up to this size may stay in memory when asked
_MAKE_WAY = 1.0  # seconds for an owner that is going
_BASES = 4  # more than can be on their way
_TIDY_EVERY = 10  # commits; retention also gives back space, which takes a moment
_NOTHING = retention.These(frozenset(), "")


def file_of(reference: object) -> Path | None:
    """The file that is meant: by a path object, or by a text that begins with `/`."""
    if isinstance(reference, Path):
        return reference
    starts = isinstance(reference, str) and reference.startswith("/")
    return Path(checks.path("the checkpoint", reference)) if starts else None


class Position(NamedTuple):
    """Where a subject's head is, and the checkpoint that its session descends from."""

    head: Checkpoint | None
    at: Checkpoint | None


class History:
    """Checkpoints of one session, made and found."""

    def __init__(
        self, subject: Subject, store: Store | str | None, keep: retention.Policy | None
    ) -> None:
        if store is not None and not isinstance(store, (Store, str, os.PathLike)):
            raise BadInput(f"store is {type(store).__name__}, not a store, a path or a URL")
        self.line = Line(subject)
        self._subject = subject
        self._store_or_url = store
        self._opening = threading.Lock()
        self._memory: Store | None = None
        self._keep = keep
        self._untidy = 0  # commits since retention was applied
        self._lease: Lease | None = None
        # Checkpoints by the requests that a worker knows them by, and the newest of these: captures
        # bring only the memory that changed since. One on its way may still mean an older one.
        self._bases: dict[int, str] = {}
        self._base = 0
        self._structures = Structures()  # of the last capture
        self._unverified: Layouts | None = None  # memory that the worker has mapped
        self.on_lost: OnLost | None = None  # told, in another thread, that we own it no longer

    @property
    def store(self) -> Store:
        """Where checkpoints go; opened on first use."""
        with self._opening:
            if not isinstance(self._store_or_url, Store):
                self._store_or_url = open_store(self._store_or_url)
            return self._store_or_url

    # -- owning --------------------------------------------------------------------------

    def own(self) -> None:
        """Become the owner of the subject, if we are not. Raises Owned.

        An owner that is just going, as one whose worker was killed a moment ago, is waited for.
        """
        if self._lease is None or self._lease.lost:
            self._lease = self.store.lease(self._subject, wait=_MAKE_WAY).keep(self.on_lost)

    def disown(self) -> None:
        """Nothing runs any more: somebody else may go on."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    # -- making --------------------------------------------------------------------------

    def begin(self, base: int, *, reason: str, stage: str | None) -> Opened:
        """Begin to commit a capture on a base, while nothing else is being saved; but not where
        that would have to wait, or something is wrong: `save` finds out."""
        if not self.has(base):
            return Opened(False)
        lease, parent = self._lease, self.line.parents()[0]
        if self._unverified is not None or lease is None or lease.lost:
            return Opened(True)
        try:
            draft = self.store.draft(self._subject, parent, reason=reason, stage=stage, lease=lease)
        except HoldfastError:
            return Opened(True)
        try:
            draft.foresee(self._bases[base])
        except HoldfastError:
            draft.discard()
            return Opened(True)
        return Opened(True, Begun(draft, parent))

    def go_on(self, begun: Begun, told: AheadMessage, memory: Memories) -> bool:
        """Go on with memory that came ahead of the capture; False when that cannot be, and then
        what was begun is given up."""
        try:
            checkpoints.go_on(begun, told, memory, self._bases)
        except HoldfastError:
            return False
        return True

    def save(
        self,
        captured: Coming,
        *,
        reason: str,
        stage: str | None,
        save_to_disk: bool,
        ahead: Ahead | None = None,
    ) -> SessionCheckpoint:
        """Commit a capture; a small one stays in memory when it was not to go to disk. It may have
        been begun `ahead`, with the same reason and stage."""
        try:
            captured = captured.all()
            try:
                return self._save(captured, reason, stage, save_to_disk, ahead)
            except BaseException:
                self._base = 0  # whatever was wrong with it: the next one brings everything
                raise
            finally:
                captured.release()
        finally:
            if ahead is not None:
                ahead.give_up()

    def _save(
        self,
        captured: Captured,
        reason: str,
        stage: str | None,
        save_to_disk: bool,
        ahead: Ahead | None,
    ) -> SessionCheckpoint:
        on_disk = save_to_disk or captured.size > IN_MEMORY
        made = self._write(
            captured,
            self._subject,
            reason=reason,
            stage=stage,
            on_disk=on_disk,
            ahead=ahead,
            structures=self._structures,
        )
        relied_on = self._bases.get(self._base, "")  # perhaps by the capture behind this one
        if on_disk:
            self.line.at = made.checkpoint
            self._know(captured.created.request_id, made.checkpoint)
        self._untidy += 1
        if self._untidy >= _TIDY_EVERY:
            self.tidy(retention.These(frozenset({relied_on}), "what comes next is built on it"))
        return made

    def save_as(self, other: Subject, captured: Coming, reason: str) -> Checkpoint:
        """Commit a capture as the first checkpoint of another session. Raises Conflict, and Corrupt
        when what the worker maps is damaged."""
        captured = captured.all()
        try:
            return self._write(captured, other, reason=reason, new=True).checkpoint
        finally:
            captured.release()

    def save_aside(self, captured: Coming, reason: str, stage: str | None) -> Checkpoint:
        """Commit a capture; neither the head nor this session's line comes to it by itself. Raises
        Corrupt when what the worker maps is damaged."""
        captured = captured.all()
        try:
            made = self._write(captured, self._subject, reason=reason, stage=stage, aside=True)
        finally:
            captured.release()
        return made.checkpoint

    def _write(
        self,
        captured: Captured,
        subject: Subject,
        *,
        reason: str,
        stage: str | None = None,
        on_disk: bool = True,
        new: bool = False,
        aside: bool = False,
        ahead: Ahead | None = None,
        structures: Structures | None = None,
    ) -> SessionCheckpoint:
        """Commit a capture, of ours or as a `new` session's: the one way into the store."""
        self.verify()  # nothing is vouched for that nobody has looked at
        ours = on_disk and not new
        if ours:
            self.own()  # a session whose name is its own owns nothing before it has anything
        return checkpoints.write(
            self.store if on_disk else self._in_memory(),
            subject,
            captured,
            parents=self.line.parents() if on_disk else ("head",),
            reason=reason,
            stage=stage,
            on_disk=on_disk,
            new=new,
            aside=aside,
            lease=self._lease if ours else None,
            bases=self._bases,
            ahead=ahead,
            structures=structures,
        )

    @property
    def lease(self) -> Lease | None:
        """The right to advance the subject, when it is ours."""
        return self._lease

    def base(self) -> int:
        """The request whose checkpoint the next capture may refer to; 0 when it must not.

        Negative when memory is not to be watched at all: HOLDFAST_TRACK_MEMORY=off. Nothing is
        looked up for it, so it may be called from anywhere.
        """
        if os.environ.get("HOLDFAST_TRACK_MEMORY", "on").lower() in ("off", "0", "no", "false"):
            return -1
        return self._base

    def has(self, base: int) -> bool:
        """Whether a base is there still: somebody may have deleted it since."""
        known = self._bases.get(base)
        try:
            return known is not None and bool(self.store.resolve(known))
        except NotFound:
            if self._base == base:
                self._base = 0
            return False

    def _know(self, request: int, checkpoint: Checkpoint) -> None:
        """A worker has this checkpoint's memory since that request."""
        while len(self._bases) >= _BASES:
            del self._bases[min(self._bases)]
        self._bases[request] = checkpoint.id
        self._base = request

    def tidy(self, besides: retention.Policy = _NOTHING) -> None:
        """Apply retention to what was made since the last time: the session's, if it has one, and
        what is to be kept besides.

        What stays in memory always has one, or a long-lived host would grow for ever.
        """
        if not self._untidy:
            return
        self._untidy = 0
        if self._memory is not None:
            self._memory.prune(self._keep or retention.DEFAULT)
        if self._keep is not None:
            self.store.prune(self._keep | besides, self._subject)

    def check_free(self, subject: Subject, hint: str) -> None:
        """Raise Conflict when a subject has checkpoints."""
        checkpoints.check_free(self.store, subject, hint)

    # -- finding -------------------------------------------------------------------------

    def head(self) -> Checkpoint:
        """Raises NotFound."""
        head = self.store.head(self._subject)
        if head is None:
            raise NotFound(f"{self._subject} has no checkpoint")
        return head

    def check_there(self) -> None:
        """Raise NotFound when there is nothing to go on from, with names that may be meant."""
        try:
            self.head()
        except NotFound as error:
            raise NotFound(str(error), hint=self._instead()) from None

    def _instead(self) -> str:
        import difflib

        name, kind = self._subject.name, self._subject.kind
        known = [each.subject.name for each in self.store.subjects() if each.subject.kind == kind]
        close = " or ".join(map(repr, difflib.get_close_matches(name, known)))
        way = f"did you mean {close}?" if close else f"Session({name!r}) begins it;"
        return f"{way} `holdfast subjects --kind {kind}` lists what there is"

    def find(
        self, reference: Reference | None, takes_files: bool = False
    ) -> tuple[Store, Checkpoint]:
        """What is meant, by default the head, and where it is. A file is taken into the store, if
        that is wanted.

        Raises NotFound, BadInput, and UsageError for a checkpoint of something else.
        """
        if reference is None:
            return self.store, self.head()
        if (path := file_of(reference)) is not None:
            if not takes_files:
                raise BadInput(
                    f"{path} is a file, and only a checkpoint of the store can be looked at",
                    hint=f"`holdfast import {path}` takes it into the store and says its id",
                )
            # Whoever signed it stays its origin: reading it asks for trust.
            return self.store, self.store.import_(path)
        text = self._text(reference)
        store = self.store
        if self._memory is not None and any(cp.id == text for cp in self._memory.list()):
            store = self._memory
        found = store.resolve(text)
        if found.subject != self._subject:
            raise UsageError(
                f"{found.short} is a checkpoint of {found.subject}, not of {self._subject}",
                hint="fork it, or resume that session",
            )
        return store, found

    def read(
        self,
        store: Store,
        target: Checkpoint,
        trust: bool,
        tell: Callable[[tuple[str, ...]], object] = lambda modules: None,
    ) -> Stored:
        """A checkpoint's parts and memory; early on, `tell` is told what it imports first. Raises
        Denied or Corrupt."""
        return checkpoints.read(store, target, trust, tell)

    def restored(self, store: Store, target: Checkpoint, stored: Stored, request: int) -> None:
        """The worker has it; what it maps is to be verified."""
        self._base = 0
        if store is not self._memory and not target.foreign:
            self._know(request, target)
        self._unverified = stored.memory

    def verify(self) -> None:
        """Wait until what the worker maps was verified. Raises Corrupt."""
        if self._unverified is not None:
            self._unverified.check()
        self._unverified = None

    # -- moving --------------------------------------------------------------------------

    def position(self) -> Position:
        """Where the subject's head and this session are now."""
        return Position(self.store.head(self._subject), self.line.at)

    def move_to(self, store: Store, target: Checkpoint, trust: bool) -> Checkpoint:
        """This session is about to restore this checkpoint: it descends from it then."""
        if target.subject != self._subject:
            self.line.at = target  # from a file: nothing of ours to move the head to
        elif store is not self._memory:
            self.line.at = store.restore(target, trust=trust, lease=self._lease)
        return target

    def is_ours(self, store: Store, target: Checkpoint) -> bool:
        """Whether the subject's head can come to this checkpoint."""
        return target.subject == self._subject and store is not self._memory

    def rollback_target(self, to: Reference | None) -> Checkpoint:
        """What a rollback goes to, by default what was before the last checkpoint. Raises
        NotFound."""
        if to is None:
            return self.line.rollback_target(self.store)
        return self.store.resolve(self._text(to))

    def roll_back(self, target: Checkpoint, trust: bool) -> Checkpoint:
        """Move the head to a new checkpoint with the content of an older one."""
        store = self.store
        self.line.take_head(store, self._lease)
        fault_point("the head is on this session's line")
        self.line.at = store.rollback(self._subject, target, trust=trust, lease=self._lease)
        return self.line.at

    def go_back(self, position: Position) -> None:
        """Undo a move that the worker did not follow: nothing of it stays in the store."""
        made, self.line.at = self.line.at, position.at
        head = self.store.head(self._subject)
        if position.head is not None and head != position.head:
            self.store.restore(position.head, trust=True, lease=self._lease)
        if made is not None and made == head != position.head and made.rollback_of is not None:
            self.store.delete(made, lease=self._lease)  # nobody else has it

    def export(self, reference: Reference | None, path: Path) -> Checkpoint:
        """Write a checkpoint to a file that any store, and `restore`, can read."""
        store, found = self.find(reference)
        store.export(found, path)
        return found

    def _text(self, reference: Reference) -> str:
        """A reference as the store takes it; `~2` alone is an ancestor of the head."""
        text = reference if isinstance(reference, str) else checkpoints.id_of(reference)
        checks.text("the checkpoint", text)
        return f"{self._subject}{text}" if text.startswith("~") else text

    def _in_memory(self) -> Store:
        if self._memory is None:
            self._memory = open_store("memory://")
        return self._memory
