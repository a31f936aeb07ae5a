"""Files: a directory as the place of a session's checkpoints, one readable JSON file each.

A file is complete before it has its name: written beside it, synced, renamed, and the directory
synced. Old ones go only after that. Writers of one session take turns by a lock that the kernel
releases when its holder dies; readers need none, because no file ever changes under its name
except by being replaced whole.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import msgspec

from holdfast.model import moment
from holdfast.model.disk import Disk
from holdfast.model.errors import (
    BadInput,
    Conflict,
    Corrupt,
    Denied,
    HoldfastError,
    NotFound,
    Unsupported,
    from_os_error,
    from_path_error,
)
from holdfast.model.files import make_folder
from holdfast.state import document as documents
from holdfast.state import durable, lineage, names
from holdfast.state.document import Document
from holdfast.state.lineage import StateCheckpoint
from holdfast.state.lock import PATIENCE, held
from holdfast.state.place import Clock, no_session

log = logging.getLogger("holdfast.state")

_Signs: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a file was found to be, and by which signs it is the same file still."""

    signs: _Signs
    checkpoint: StateCheckpoint | None
    # A newer version's checkpoint cannot be read here, and it is one all the same.
    real: bool = True


class Directory:
    """The checkpoints of one session in one directory."""

    def __init__(
        self,
        path: Path,
        session_id: str,
        clock: Clock = moment.now,
        patience: float = PATIENCE,
        disk: Disk | None = None,
    ) -> None:
        self.path = path
        self.session_id = session_id
        self._clock = clock
        self._patience = patience
        self._disk = disk or Disk()
        # Files never change under their name, so each needs to be read only once.
        self._seen: dict[str, _Seen] = {}

    def make(self) -> None:
        """Create the directory, private to its user, with its parents."""
        try:
            make_folder(self.path)
        except FileExistsError:
            raise BadInput(f"not a directory: {self.path}") from None
        except OSError as error:
            raise from_path_error(error, "making the directory for checkpoints") from error

    # reading

    def checkpoints(self) -> list[StateCheckpoint]:
        return self._list(self._names())

    def find(self, reference: str) -> StateCheckpoint:
        found = lineage.find(reference, self.checkpoints())
        if found is None:
            self.read(reference)  # says why: it is not there, damaged, or too new
            raise NotFound(f"checkpoint {reference!r} of {self.session_id} is gone")
        return found

    def read(self, checkpoint_id: str) -> Document:
        if names.time_of(checkpoint_id) is None:
            raise NotFound(f"no checkpoint {checkpoint_id!r} of {self.session_id}")
        found = self._load(names.checkpoint_file(self.session_id, checkpoint_id))
        if found is None:
            raise NotFound(f"no checkpoint {checkpoint_id!r} of {self.session_id}")
        return found[0]

    def head(self) -> StateCheckpoint | None:
        # Every move of the head writes a file, so the newest file is the head.
        return next(iter(self.checkpoints()), None)

    def latest(self) -> tuple[StateCheckpoint, Document] | None:
        for stamp in sorted(self._stamps(self._names()), reverse=True):
            name = names.checkpoint_file(self.session_id, stamp)
            try:
                found = self._load(name)
            except (Corrupt, Denied) as error:
                log.warning("ignored %s: %s", self.path / name, error)
                continue
            if found is not None:
                return self._remember(name, stamp, *found), found[0]
        return None

    def saved(self) -> Document | None:
        try:
            found = self._load(names.state_file(self.session_id))
        except (Corrupt, Denied) as error:
            log.warning("ignored the saved state of %s: %s", self.session_id, error)
            return None
        return found[0] if found else None

    def saved_last(self) -> bool:
        # Every document gets a time that is later than those of all others.
        latest, saved = self.latest(), self.saved()
        return saved is not None and (latest is None or saved.time >= latest[1].time)

    def missing(self) -> HoldfastError:
        if self._exists(self._names()):
            return Corrupt(f"no file of the session {self.session_id} can be read")
        return no_session(self.session_id)

    # writing

    def add(self, document: Document, *, limit: int) -> StateCheckpoint:
        with self._turn() as file_names:
            if document.parent is None:
                head = next(iter(self._list(file_names)), None)
                parent = head.origin if head else None
                document = msgspec.structs.replace(document, parent=parent)
            return self._add(document, file_names, limit)

    def create(self, document: Document) -> StateCheckpoint:
        with self._turn() as file_names:
            if self._exists(file_names):
                raise Conflict(
                    f"there is a session {self.session_id} in {self.path} already",
                    hint="choose another name, or load it",
                )
            # Stamps mean nothing outside their session; `parent_session` says where it is from.
            first = msgspec.structs.replace(document, parent=None)
            return self._add(first, file_names, limit=1)

    def back_to(self, checkpoint: StateCheckpoint, *, limit: int) -> StateCheckpoint:
        with self._turn() as file_names:
            document = self.read(checkpoint.id)
            again = msgspec.structs.replace(
                document,
                reason=f"rollback to {checkpoint.origin}",
                parent=checkpoint.parent,
                rollback_of=checkpoint.origin,
            )
            return self._add(again, file_names, limit)

    def save(self, document: Document) -> None:
        with self._turn() as file_names:
            name = names.state_file(self.session_id)
            self._write(name, document.at(self._time(file_names)), file_names)
            log.debug("saved the state of %s", self.session_id)

    # inside a turn

    @contextmanager
    def _turn(self) -> Iterator[list[str]]:
        """Be the only writer of the session; gives the directory's file names.

        An unfinished file that is there now belongs to a writer that died, for it would hold
        the lock otherwise.
        """
        try:
            with held(self.path / names.lock_file(self.session_id), self._patience):
                file_names = self._names()
                for name in file_names:
                    if names.is_unfinished(name, self.session_id):
                        log.warning("removed %s, left by an interrupted write", self.path / name)
                        durable.remove(self.path / name)
                yield file_names
        except OSError as error:
            raise from_os_error(error, f"writing the session {self.session_id}") from error

    def _time(self, file_names: list[str]) -> datetime:
        """The clock's time, but later than every checkpoint and the saved state.

        What is damaged does not count: a stray file must not push time to its end. Its name is
        passed over all the same, so that it is not replaced. Raises BadInput at the end of time.
        """
        taken = set(self._stamps(file_names))
        newest = (
            names.time_of(stamp) for stamp in sorted(taken, reverse=True) if self._is_real(stamp)
        )
        past = [each for each in (next(newest, None), self._saved_time()) if each]
        time = moment.after(max(past, default=None), self._clock())
        while names.stamp(time) in taken:
            time = moment.after(time, time)
        return time

    def _is_real(self, stamp: str) -> bool:
        if self._look(stamp):
            return True
        seen = self._seen.get(names.checkpoint_file(self.session_id, stamp))
        return seen is not None and seen.real

    def _saved_time(self) -> datetime | None:
        try:
            saved = self.saved()
            return saved.time if saved else None
        except (Unsupported, BadInput) as error:
            log.warning("the saved state of %s has no usable time: %s", self.session_id, error)
            return None

    def _add(self, document: Document, file_names: list[str], limit: int) -> StateCheckpoint:
        present = self._list(file_names)
        when = self._time(file_names)
        document = document.at(when)
        stamp = names.stamp(when)
        name = names.checkpoint_file(self.session_id, stamp)
        self._write(name, document, file_names)
        made = self._remember(name, stamp, document, _signs((self.path / name).stat()))
        log.info("checkpoint %s of %s: %s", stamp, self.session_id, document.reason)
        for old in lineage.surplus([made, *present], limit):
            # The new one is durable. An old one that stays is untidy, not an error.
            if old.path and durable.remove(old.path):
                log.debug("removed checkpoint %s of %s", old.id, self.session_id)
        return made

    def _write(self, name: str, document: Document, file_names: list[str]) -> None:
        if not names.session_ids(file_names):
            # Nobody has written here: whoever made the directory may have died before it lasts.
            self._disk.sync_way(self.path, "state place")
        unfinished = self.path / names.unfinished(name)
        durable.write(self.path / name, documents.to_bytes(document), unfinished, self._disk)

    # files

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise from_path_error(error, "reading the directory of checkpoints") from error

    def _stamps(self, file_names: list[str]) -> list[str]:
        found = (names.stamp_in(name, self.session_id) for name in file_names)
        return [stamp for stamp in found if stamp]

    def _list(self, file_names: list[str]) -> list[StateCheckpoint]:
        stamps = sorted(self._stamps(file_names), reverse=True)
        present = [each for each in map(self._look, stamps) if each]
        current = {names.checkpoint_file(self.session_id, stamp) for stamp in stamps}
        self._seen = {name: seen for name, seen in self._seen.items() if name in current}
        return present

    def _look(self, stamp: str) -> StateCheckpoint | None:
        """What the file of that stamp is; None, with one warning, when it cannot be read."""
        name = names.checkpoint_file(self.session_id, stamp)
        try:
            signs = self._signs_of(name)
            seen = self._seen.get(name)
            if seen is None or seen.signs != signs:
                found = self._load(name)
                return self._remember(name, stamp, *found) if found else None
        except FileNotFoundError:
            return None  # somebody else let go of it since the directory was read
        except (Corrupt, Denied, Unsupported) as error:
            log.warning("ignored %s: %s", self.path / name, error)
            seen = self._seen[name] = _Seen(signs, None, isinstance(error, Unsupported))
        return seen.checkpoint

    def _signs_of(self, name: str) -> _Signs:
        try:
            return _signs((self.path / name).stat())
        except FileNotFoundError:
            raise
        except OSError:
            return _signs((self.path / name).lstat())  # links in a circle

    def _remember(
        self, name: str, stamp: str, document: Document, signs: _Signs
    ) -> StateCheckpoint:
        taken = names.time_of(stamp)
        if taken is None:
            raise BadInput(f"not a stamp: {stamp!r}")
        made = StateCheckpoint(
            id=stamp,
            session_id=self.session_id,
            time=taken,
            reason=document.reason,
            stage=document.stage,
            parent=document.parent,
            rollback_of=document.rollback_of,
            path=self.path / name,
            size_bytes=signs[0],
        )
        self._seen[name] = _Seen(signs, made)
        return made

    def _load(self, name: str) -> tuple[Document, _Signs] | None:
        try:
            data, found = durable.read(self.path / name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise from_os_error(error, "reading a checkpoint") from error
        return documents.from_bytes(data, self.session_id), _signs(found)

    def _exists(self, file_names: list[str]) -> bool:
        """Is there any file of the session, readable or not?"""
        return names.state_file(self.session_id) in file_names or bool(self._stamps(file_names))


def _signs(found: os.stat_result) -> _Signs:
    # The time of its last chmod, too: what was unreadable may be readable now.
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
