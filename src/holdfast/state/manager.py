"""The state manager: an application's own state, its checkpoints, and the way back."""

from __future__ import annotations

import functools
import logging
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, HoldfastError, NotFound, Unsupported, UsageError
from holdfast.model.report import Report
from holdfast.model.secrets import Rule
from holdfast.state import changes, lineage, names, registry, values
from holdfast.state import document as documents
from holdfast.state.autosave import Autosave
from holdfast.state.changes import Change
from holdfast.state.document import Document
from holdfast.state.encoder import Seen
from holdfast.state.files import Directory
from holdfast.state.lineage import StateCheckpoint
from holdfast.state.location import APP, place_of
from holdfast.state.place import Clock
from holdfast.state.secrets import Secrets
from holdfast.state.types import Types, is_buildable, known
from holdfast.state.versions import FIRST, Step, Versions

if TYPE_CHECKING:
    from holdfast.store import Store

log = logging.getLogger("holdfast.state")

CHECKPOINT_LIMIT = 10
STAGE = "current_stage"

Reference = str | StateCheckpoint | Checkpoint
T = TypeVar("T")


def _new_id() -> str:
    return str(uuid.uuid4())


class Begun(Generic[T]):
    """A state that was taken and is to be written: calling it writes, once.

    While any of them waits, the manager keeps the newest state that is durable. One that will
    not be called is given up by `drop`, or by letting go of it: the manager knows them weakly.
    """

    def __init__(
        self,
        write: Callable[[], T],
        lock: threading.RLock,
        pending: weakref.WeakSet[Begun[Any]],
    ) -> None:
        self._write, self._lock, self._pending = write, lock, pending
        self._dropped = False
        pending.add(self)

    def __call__(self) -> T:
        """Write it. Raises UsageError when it was given up."""
        with self._lock:
            if self._dropped:
                raise UsageError("this state was given up before it was written")
            self._pending.discard(self)
            return self._write()

    def drop(self) -> None:
        """Give it up, unless it is written or being written."""
        with self._lock:
            self._dropped = True
            self._pending.discard(self)


class _Stage:
    """A stage that somebody is in."""

    def __init__(self, name: str) -> None:
        self.name = name


class StateManager:
    """Keeps the state of one session, saves checkpoints of it, and goes back to them.

    `state_data` is the state: a plain dict. Checkpoints are readable JSON files in
    `checkpoint_dir`, or are on a store when one is given. All methods may be called from
    several threads, and several processes may use one session: their checkpoints line up and
    none replaces another.
    """

    # An application's state has values of any type: hence the Any here and below.
    state_data: dict[str, Any]

    def __init__(
        self,
        session_id: str | None = None,
        *,
        app: str = APP,
        directory: str | os.PathLike[str] | None = None,
        store: Store | None = None,
        checkpoint_limit: int = CHECKPOINT_LIMIT,
        types: Iterable[type] = (),
        secrets: Mapping[str, str | bytes] | None = None,
        keep_secrets: bool | Iterable[str] = False,
        leave_out: Iterable[str] = (),
        version: int = FIRST,
        migrations: Mapping[int, Step] | None = None,
        clock: Clock = moment.now,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        """Begin with an empty state; `load` takes up a saved one.

        `types` may be rebuilt on load. `secrets` are put in again where they were left out; what
        stands under a key in `keep_secrets` is never left out, and True keeps all of them;
        `leave_out` are keys of more secrets. `version` is that of the application's schema, and
        `migrations[n]` makes a state of version n one of version n + 1.
        Raises BadInput for a session id that cannot be a file name, or an impossible limit.
        """
        self.session_id = names.check_session_id(new_id() if session_id is None else session_id)
        self.parent_session: str | None = None
        self.state_data = {}
        self.checkpoint_limit = checkpoint_limit
        self.report = Report()  # what became of secrets when the state was loaded last
        self._app, self._clock, self._new_id = names.check_app(app), clock, new_id
        self._types = Types(types, below=known)
        self._secrets, self._rule = Secrets(secrets), _rule(keep_secrets, leave_out)
        self._versions = Versions(version, migrations)
        self._lock = threading.RLock()
        self._head: StateCheckpoint | None = None
        self._seen: Seen | None = None
        self._warned: set[str] = set()  # of secrets that are left out, by name
        self._saved: dict[str, values.JSON] | None = None  # what a save need not write again
        # States are taken in this order; the last one that is durable, or was gone back to.
        self._taken = self._durable = 0
        self._under_way: weakref.WeakSet[Begun[Any]] = weakref.WeakSet()  # not written yet
        self._newest: Document | None = None  # the durable one, while any of those may be older
        self._stages: list[_Stage] = []
        self._store = store
        self._place = place_of(self.session_id, app, directory, store, clock)
        if isinstance(self._place, Directory):
            self._place.make()

    @classmethod
    def load(cls, session_id: str, **given: Any) -> StateManager:
        """Take up a session where it stopped: its saved state or newest checkpoint.

        Everything but the session id is as for a new one. Raises NotFound when there is none,
        Corrupt when none can be read, Denied when it has instances of classes that are neither
        registered nor in `types`, Unsupported when there is no way from its version.
        """
        names.check_session_id(session_id)
        place = place_of(
            session_id,
            names.check_app(given.get("app", APP)),
            given.get("directory"),
            given.get("store"),
            given.get("clock", moment.now),
        )
        latest, saved = place.latest(), place.saved()
        if latest is None and saved is None:
            raise place.missing()
        manager = cls(session_id, **given)
        if saved is not None and (latest is None or place.saved_last()):
            found = saved
            manager._head = (
                lineage.find(saved.parent, place.checkpoints()) if saved.parent else None
            )
        else:
            assert latest is not None  # one of the two is there
            manager._head, found = latest
        manager._replace(manager._state(found))
        manager.parent_session = found.parent_session
        return manager

    # the state

    def set_state(self, key: str, value: Any) -> None:
        """Set one value of the state."""
        with self._lock:
            self.state_data[key] = value

    def get_state(self, key: str, default: Any = None) -> Any:
        """One value of the state, or the default."""
        with self._lock:
            return self.state_data.get(key, default)

    # where it is kept

    @property
    def checkpoint_dir(self) -> Path:
        """The directory of the checkpoints. Raises Unsupported when they are on a store."""
        if isinstance(self._place, Directory):
            return self._place.path
        raise Unsupported(f"the checkpoints of {self.session_id} are on a store, not in files")

    @checkpoint_dir.setter
    def checkpoint_dir(self, directory: str | os.PathLike[str]) -> None:
        if self._store is not None:
            raise UsageError("a state is kept on a store or in a directory, not in both")
        with self._lock:
            place = place_of(self.session_id, self._app, directory, None, self._clock)
            if isinstance(place, Directory):
                place.make()
            self._place, self._head, self._saved, self._durable = place, None, None, 0

    @property
    def checkpoint_limit(self) -> int:
        """How many checkpoints are kept."""
        return self._checkpoint_limit

    @checkpoint_limit.setter
    def checkpoint_limit(self, limit: int) -> None:
        if type(limit) is not int or limit < 1:
            raise BadInput(f"checkpoint_limit is a number of at least 1, not {limit!r}")
        self._checkpoint_limit = limit

    # checkpoints

    def checkpoint(self, reason: str = "manual") -> StateCheckpoint:
        """Save the state as it is now, durably, then let go of the oldest beyond the limit.

        Raises BadInput, with the path to it, for a value that could not come back as it is;
        StorageFull when there is no room. Then nothing is written, and nothing is removed.
        """
        with self._lock:  # so that none which is taken later is written sooner
            return self.begin_checkpoint(reason)()

    def begin_checkpoint(self, reason: str = "manual") -> Callable[[], StateCheckpoint]:
        """Take the state as it is now; what is returned saves it, from any thread."""
        with self._lock:
            document, report = self._document(reason)
            return self._begin(functools.partial(self._keep, document, report, self._taken))

    def list_checkpoints(self) -> list[StateCheckpoint]:
        """The checkpoints of the session, newest first."""
        return self._place.checkpoints()

    def rollback(self, to: Reference | None = None) -> StateCheckpoint:
        """Go back to a checkpoint: to the parent of the last one unless another is given.

        What was not in a checkpoint is discarded. The way back is a new checkpoint, so it can
        be taken back by going to the one before. Raises NotFound when there is nothing to go to.
        """
        with self._lock:
            target = self._target(_id(to))
            # Read before anything moves, so that a refusal leaves all as it is.
            document = self._place.read(target.id)
            state = self._state(document, target.origin, shared=len(self._under_way) > 0)
            head = self._place.back_to(target, limit=self.checkpoint_limit)
            self._replace(state)
            self._went_to(head, document)
            return head

    @contextmanager
    def stage(self, name: str) -> Iterator[StateCheckpoint]:
        """A stage of the work: a checkpoint when it begins; back to that when it fails.

        Inside, `current_stage` is the name. An exception, of whatever kind, is raised again after
        the state is what it was at the beginning.
        """
        with self._lock:
            outer = self.state_data.get(STAGE)
            self.set_state(STAGE, name)
            try:
                document, report = self._document(f"stage {name}")
                entry = self._keep(document, report, self._taken)
            except BaseException:
                self._unset_stage(outer)
                raise
            inside = _Stage(name)
            self._stages.append(inside)
        try:
            yield entry
        except BaseException as error:
            self._return_to(entry, document, error)
            raise
        finally:
            with self._lock:  # other threads may have begun stages since, which go on
                self._stages.remove(inside)
                if self._stages:  # the stage around this one goes on
                    self.set_state(STAGE, self._stages[-1].name)

    def diff(self, before: Reference, after: Reference | None = None) -> list[Change]:
        """What changed from one checkpoint to another, or to the state as it is now."""
        with self._lock:
            old = self._place.read(self._place.find(_id(before) or "").id).state_info
            if after is None:
                new: dict[str, Any] = self._encoded().state
            else:
                new = self._place.read(self._place.find(_id(after) or "").id).state_info
        return changes.between(old, new, self._types)

    def fork(self, name: str | None = None, checkpoint: Reference | None = None) -> StateManager:
        """A new session with this state, or with that of one of the checkpoints.

        Its first checkpoint is durable when this returns, and its parent session is this one.
        Raises Conflict when there is a session of that name.
        """
        return self.begin_fork(name, checkpoint)()

    def begin_fork(
        self, name: str | None = None, checkpoint: Reference | None = None
    ) -> Callable[[], StateManager]:
        """Take the state as it is now; what is returned makes the fork, from any thread."""
        with self._lock:
            reason = f"fork of {self.session_id}"
            present = self._document(reason)[0] if checkpoint is None else None

        def finish() -> StateManager:
            with self._lock:
                came_from = self._head if present else self._place.find(_id(checkpoint) or "")
                source = present or self._place.read(came_from.id if came_from else "")
                other = self._sibling(name)
                first = documents.new(
                    session_id=other.session_id,
                    reason=reason,
                    stage=source.stage,
                    state_info=source.state_info,
                    parent_session=self.session_id,
                    parent=came_from.id if came_from else None,
                    state_version=source.state_version,
                    typed=source.typed,
                )
                state = self._state(first, came_from.origin if came_from else None, shared=True)
                other._head = other._place.create(first)
                other._replace(state)
                other.parent_session = self.session_id
                other._note()
                return other

        return finish

    def save_state(self) -> None:
        """Save the state as it is now without a checkpoint, replacing what was saved before."""
        with self._lock:
            self.begin_save()()

    def begin_save(self, *, only_changes: bool = False) -> Callable[[], None]:
        """Take the state as it is now; what is returned saves it, from any thread, unless a later
        one has been saved by then: that must not be lost."""
        with self._lock:
            document, _ = self._document("save")
            taken = self._taken

        def finish() -> None:
            with self._lock:
                if taken < self._durable or (only_changes and document.state_info == self._saved):
                    return
                head = self._head.id if self._head else None
                self._place.save(document.after(head))
                self._saved = document.state_info
                self._is_durable(document, taken)
                self._note()

        return self._begin(finish)

    def autosave(self, interval: float = 30.0, *, signals: bool = True) -> Autosave:
        """Save the state by itself: at this interval in seconds, at exit, and on SIGTERM.

        Nothing is written while nothing changes. What goes wrong is logged, and tried again.
        """

        def save() -> None:
            with self._lock:
                self.begin_save(only_changes=True)()

        return Autosave(save, interval, signals)

    # inside

    def _encoded(self) -> values.Encoded:
        encoded = values.encode(
            self.state_data,
            self._types,
            last=self._seen,
            rule=self._rule.after(self._secrets.given),
        )
        self._seen = encoded.seen
        for cls in encoded.classes:
            # This process made the instances itself, so it may also have them back.
            if is_buildable(cls):
                known.add(cls)
        return encoded

    def _document(self, reason: str) -> tuple[Document, Report]:
        """The state as it is now, without a time and a parent, and what is not in it."""
        encoded = self._encoded()
        self._taken += 1
        report = self._secrets.left_out(encoded.left_out, encoded.state)
        for item in report:
            # Said once: each checkpoint's report says it again.
            level = logging.DEBUG if item.name in self._warned else logging.WARNING
            self._warned.add(item.name)
            log.log(level, "%s: left out %s: %s", self.session_id, item.name, item.reason)
        made = documents.new(
            session_id=self.session_id,
            reason=documents.check_text("the reason", reason),
            stage=documents.stage_of(self.state_data.get(STAGE)),
            state_info=encoded.state,
            parent_session=documents.parent_of(
                self.parent_session or self.state_data.get("parent_session")
            ),
            state_version=self._versions.current,
            typed=encoded.typed,
        )
        return made, report

    def _begin(self, write: Callable[[], T]) -> Begun[T]:
        return Begun(write, self._lock, self._under_way)

    def _keep(self, document: Document, report: Report, taken: int) -> StateCheckpoint:
        with self._lock:
            parent = self._head.origin if self._head else None
            made = self._place.add(document.after(parent), limit=self.checkpoint_limit)
            head = made.with_report(report)
            self._came_to(head, document, taken)
            self._note()
            return head

    def _came_to(self, head: StateCheckpoint, document: Document, taken: int) -> None:
        """The head is a checkpoint of a state that was taken here."""
        with self._lock:
            self._head = head
            self._secrets.belong(document.state_info, head.origin)
            if taken < self._durable and self._newest is not None:
                # A later state was durable before: that stays the one which is loaded.
                self._place.save(self._newest.after(head.id))
                document, taken = self._newest, self._durable
            if self._saved is not None:  # it is this one now that a save need not write again
                self._saved = document.state_info
            self._is_durable(document, taken)

    def _went_to(self, head: StateCheckpoint, document: Document) -> None:
        """The head went back to a checkpoint, whose state this is now."""
        with self._lock:
            self._head = head
            self._taken += 1
            self._is_durable(document, self._taken)
            self._saved = None

    def _is_durable(self, document: Document, taken: int) -> None:
        """This one is what would be loaded now."""
        self._durable = taken
        self._newest = document if self._under_way else None

    def _state(
        self, document: Document, checkpoint: str | None = None, *, shared: bool = False
    ) -> dict[str, Any]:
        """The state that a document holds, of this application's version; in containers of its
        own when those of the document are somebody else's, too. `checkpoint` is the one that the
        document is of, if it is of any."""
        state: dict[str, Any] = document.state_info
        if document.typed or shared:
            secrets = self._secrets.of(state, checkpoint)
            state = values.decode(state, self._types, secrets)
        self.report = self._secrets.report()
        return self._versions.bring_up(state, document.state_version)

    def _target(self, wanted: str | None) -> StateCheckpoint:
        if wanted is not None:
            return self._place.find(wanted)
        head = self._head or self._place.head()
        if head is None:
            raise NotFound(f"{self.session_id} has no checkpoint to go back to")
        target = lineage.earlier(head, self._place.checkpoints())
        if target is None:
            raise NotFound(
                f"nothing before checkpoint {head.origin} of {self.session_id} is kept",
                hint=f"rollback({head.id!r}) goes to the last checkpoint itself",
            )
        return target

    def _return_to(self, entry: StateCheckpoint, document: Document, error: BaseException) -> None:
        """Be as at the entry of a stage, even when the checkpoint itself is out of reach."""
        with self._lock:
            try:
                self.rollback(entry)
            except HoldfastError as failure:
                log.warning("%s: no rollback to %s: %s", self.session_id, entry.id, failure)
                self._replace(self._state(document, entry.origin, shared=True))
                try:
                    self.checkpoint(f"rollback to {entry.id}")
                except HoldfastError as again:
                    # What the stage raised is what matters; the state in memory is right.
                    error.add_note(f"the rollback could not be saved: {again}")

    def _unset_stage(self, outer: object) -> None:
        if outer is None:
            self.state_data.pop(STAGE, None)
        else:
            self.state_data[STAGE] = outer

    def _replace(self, state: dict[str, Any]) -> None:
        # In place, because the application may hold on to the dict.
        self.state_data.clear()
        self.state_data.update(state)

    def _sibling(self, name: str | None) -> StateManager:
        """A manager that differs from this one only in its session."""
        other = type(self)(
            name,
            app=self._app,
            directory=None if self._store else self.checkpoint_dir,
            store=self._store,
            checkpoint_limit=self.checkpoint_limit,
            clock=self._clock,
            new_id=self._new_id,
        )
        other._types, other._versions = self._types, self._versions
        other._secrets, other._rule = self._secrets.copy(), self._rule
        return other

    def _note(self) -> None:
        if isinstance(self._place, Directory):
            registry.note(self._place.path)


def _id(reference: Reference | None) -> str | None:
    return reference if reference is None or isinstance(reference, str) else reference.id


def _rule(keep_secrets: bool | Iterable[str], leave_out: Iterable[str]) -> Rule:
    try:
        return Rule.of(keep_secrets, leave_out)
    except TypeError as error:
        raise BadInput(
            f"keep_secrets and leave_out are names of keys: {error}",
            hint="such as keep_secrets=['cache_key'], leave_out=['study_id']",
        ) from None
