"""The state manager: an application's own state, its checkpoints, and the way back."""

from __future__ import annotations

import enum
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.model import home, moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, NotFound, Unsupported, UsageError, from_os_error
from holdfast.state import document as documents
from holdfast.state import lineage, names, registry, values
from holdfast.state.document import Document
from holdfast.state.files import Directory
from holdfast.state.lineage import StateCheckpoint
from holdfast.state.place import Clock, Place
from holdfast.state.shelf import Shelf
from holdfast.state.types import Types, is_buildable, known

if TYPE_CHECKING:
    from holdfast.store import Store

log = logging.getLogger("holdfast.state")

APP = "holdfast"
CHECKPOINT_LIMIT = 10


def _new_id() -> str:
    return str(uuid.uuid4())


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
        clock: Clock = moment.now,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        """Begin with an empty state; `load` takes up a saved one.

        Raises BadInput for a session id that cannot be a file name, or an impossible limit.
        """
        self.session_id = names.check_session_id(new_id() if session_id is None else session_id)
        self.parent_session: str | None = None
        self.state_data = {}
        self.checkpoint_limit = checkpoint_limit
        self._app, self._clock, self._new_id = names.check_app(app), clock, new_id
        self._types = Types(types, below=known)
        self._lock = threading.RLock()
        self._head: StateCheckpoint | None = None
        self._store = store
        self._place = _place(self.session_id, app, directory, store, clock)
        if isinstance(self._place, Directory):
            self._place.make()

    @classmethod
    def load(
        cls,
        session_id: str,
        *,
        app: str = APP,
        directory: str | os.PathLike[str] | None = None,
        store: Store | None = None,
        checkpoint_limit: int = CHECKPOINT_LIMIT,
        types: Iterable[type] = (),
        clock: Clock = moment.now,
    ) -> StateManager:
        """Take up a session where it stopped: its saved state or newest checkpoint.

        Raises NotFound when there is none, Corrupt when none can be read, Denied when it has
        instances of classes that are neither registered nor in `types`.
        """
        names.check_session_id(session_id)
        place = _place(session_id, names.check_app(app), directory, store, clock)
        latest, saved = place.latest(), place.saved()
        if latest is None and saved is None:
            raise place.missing()
        manager = cls(
            session_id,
            app=app,
            directory=directory,
            store=store,
            checkpoint_limit=checkpoint_limit,
            types=types,
            clock=clock,
        )
        if saved is None or (latest and latest[1].time > saved.time):
            assert latest is not None  # by the test above
            manager._head, found = latest
        else:
            found = saved
            manager._head = (
                lineage.find(saved.parent, place.checkpoints()) if saved.parent else None
            )
        manager._take(found)
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
            place = _place(self.session_id, self._app, directory, None, self._clock)
            if isinstance(place, Directory):
                place.make()
            self._place, self._head = place, None

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
        with self._lock:
            parent = self._head.origin if self._head else None
            document = self._document(reason, parent)
            self._head = self._place.add(document, limit=self.checkpoint_limit)
            self._note()
            return self._head

    def list_checkpoints(self) -> list[StateCheckpoint]:
        """The checkpoints of the session, newest first."""
        return self._place.checkpoints()

    def rollback(self, to: str | StateCheckpoint | Checkpoint | None = None) -> StateCheckpoint:
        """Go back to a checkpoint: to the parent of the last one unless another is given.

        What was not in a checkpoint is discarded. The way back is a new checkpoint, so it can
        be taken back by going to the one before. Raises NotFound when there is nothing to go to.
        """
        with self._lock:
            target = self._target(to if to is None or isinstance(to, str) else to.id)
            # Read before anything moves, so that a refusal leaves all as it is.
            document = self._place.read(target.id)
            state = values.decode(document.state_info, self._types)
            self._head = self._place.back_to(target, limit=self.checkpoint_limit)
            self._replace(state)
            return self._head

    def fork(
        self, name: str | None = None, checkpoint: str | StateCheckpoint | Checkpoint | None = None
    ) -> StateManager:
        """A new session with this state, or with that of one of the checkpoints.

        Its first checkpoint is durable when this returns, and its parent session is this one.
        Raises Conflict when there is a session of that name.
        """
        with self._lock:
            reason = f"fork of {self.session_id}"
            if checkpoint is None:
                came_from = self._head
                source = self._document(reason)
            else:
                wanted = checkpoint if isinstance(checkpoint, str) else checkpoint.id
                came_from = self._place.find(wanted)
                source = self._place.read(came_from.id)
            other = type(self)(
                name,
                app=self._app,
                directory=None if self._store else self.checkpoint_dir,
                store=self._store,
                checkpoint_limit=self.checkpoint_limit,
                clock=self._clock,
                new_id=self._new_id,
            )
            other._types = self._types
            first = documents.new(
                session_id=other.session_id,
                reason=reason,
                stage=source.stage,
                state_info=source.state_info,
                parent_session=self.session_id,
                parent=came_from.id if came_from else None,
            )
            state = values.decode(first.state_info, self._types)
            other._head = other._place.create(first)
            other._replace(state)
            other.parent_session = self.session_id
            other._note()
            return other

    def save_state(self) -> None:
        """Save the state as it is now without a checkpoint, replacing what was saved before."""
        with self._lock:
            head = self._head.id if self._head else None
            self._place.save(self._document("save", head))
            self._note()

    # inside

    def _document(self, reason: str, parent: str | None = None) -> Document:
        if not isinstance(reason, str):
            raise BadInput(f"a reason is text, not {type(reason).__name__}")
        state_info, classes = values.encode(self.state_data, self._types)
        for cls in classes:
            # This process made the instances itself, so it may also have them back.
            if is_buildable(cls):
                known.add(cls)
        parent_session = self.parent_session or self.state_data.get("parent_session")
        if not isinstance(parent_session, str | None):
            raise BadInput(f"parent_session: a session id is text, not {parent_session!r}")
        stage = _stage(self.state_data.get("current_stage"))
        _check_text("the reason", reason)
        _check_text("the stage", stage)
        _check_text("parent_session", parent_session or "")
        return documents.new(
            session_id=self.session_id,
            reason=reason,
            stage=stage,
            state_info=state_info,
            parent_session=parent_session,
            parent=parent,
        )

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

    def _take(self, document: Document) -> None:
        self._replace(values.decode(document.state_info, self._types))
        self.parent_session = document.parent_session

    def _replace(self, state: dict[str, Any]) -> None:
        # In place, because the application may hold on to the dict.
        self.state_data.clear()
        self.state_data.update(state)

    def _note(self) -> None:
        if isinstance(self._place, Directory):
            registry.note(self._place.path)


def _stage(value: object) -> str:
    if value is None:
        return documents.UNKNOWN_STAGE
    return str(value.value if isinstance(value, enum.Enum) else value)


def _place(
    session_id: str,
    app: str,
    directory: str | os.PathLike[str] | None,
    store: Store | None,
    clock: Clock,
) -> Place:
    if store is not None:
        if directory is not None:
            raise UsageError("a state is kept on a store or in a directory, not in both")
        return Shelf(store, session_id)
    return Directory(_path(app, directory), session_id, clock)


def _path(app: str, directory: str | os.PathLike[str] | None) -> Path:
    try:
        if directory is not None:
            path = Path(directory).expanduser()
        elif app == APP:
            path = home.home() / "sessions"
        else:
            path = Path.home() / f".{app}" / "sessions"
        path = path.absolute()
        if b"\0" in os.fsencode(path):
            raise BadInput(f"no directory can be called {str(path)!r}")
    except RuntimeError as error:  # ~nobody, or a user without a home
        hint = "give directory=, or set HOME"
        raise BadInput(f"no directory for the state: {error}", hint=hint) from None
    except UnicodeEncodeError:
        raise BadInput(f"no directory can be called {directory!r}") from None
    except OSError as error:  # there is no working directory any more
        raise from_os_error(error, "finding the directory for checkpoints") from error
    return path


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{what} holds half a character (a lone surrogate): {text!r}") from None
