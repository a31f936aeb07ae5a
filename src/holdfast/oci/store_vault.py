"""Checkpoints in a Holdfast store: deduplicated, signed, and wherever stores can be."""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import uuid_utils

from holdfast.model.checkpoint import Checkpoint, Split
from holdfast.model.errors import from_os_error
from holdfast.model.subject import Subject
from holdfast.oci.memory import stored
from holdfast.oci.private import private_folder
from holdfast.oci.vault import CONFIG, ENVIRONMENT, LAYER, MEMORY, REPORT, Saved, part_files, sweep
from holdfast.runtime.trial import clear

if TYPE_CHECKING:
    from holdfast.store import Store
    from holdfast.store.draft import Draft
    from holdfast.store.leases import Right


_VALUES = (CONFIG, ENVIRONMENT, REPORT)  # so that `show` and `diff` can read them
_READ = 4 * 1024 * 1024


class StoreVault:
    """A store, and local scratch space for images on their way. The store is opened when it is
    first needed: that takes longer than most commands."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        work: Path,
        ledgers: Path,
        token: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._open = open_store
        self._store: Store | None = None
        self._work = work
        self._ledgers = ledgers
        self._token = token

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = self._open()
        return self._store

    def stage(self) -> Path:
        return self._work / str(uuid_utils.uuid7())

    def save(
        self,
        subject: Subject,
        staged: Path,
        reason: str,
        *,
        stage: str | None = None,
        aside: bool = False,
    ) -> Saved:
        """Aside, no head comes to it: a bundle moves the heads of all its members at once."""
        right = self._right(subject)
        with self.store.draft(
            subject, reason=reason, stage=stage, lease=right, aside=aside
        ) as draft:
            memory = self._put_memory(draft, subject, staged / MEMORY)
            for name, path in part_files(staged):
                if name in _VALUES:
                    draft.put(name, json.loads(path.read_bytes()), split="structure")
                elif name not in memory:
                    draft.put(name, path, split=_split(name))
            checkpoint = draft.commit()
        clear(staged)
        return saved_of(checkpoint)

    def _right(self, subject: Subject) -> Right | None:
        """The right to advance a subject, if somebody here has it."""
        from holdfast.store.leases import Borrowed

        token = self._token()
        return None if token is None else Borrowed(str(subject), token)

    def _put_memory(self, draft: Draft, subject: Subject, folder: Path) -> set[str]:
        """Put the pages in the order of their slots; gives the names of the files that are in."""
        head = self.store.head(subject)
        there = {part.name for part in self.store.show(head).parts} if head else set()

        def before(part: str) -> bytes | None:
            return self.store.read(head, part) if head is not None and part in there else None

        return {f"{MEMORY}/{name}" for name in stored.put(draft, folder, f"{MEMORY}/", before)}

    def list(self, subject: Subject) -> builtins.list[Saved]:
        """The head first, then its ancestors: a rollback or a restore decides what is newest."""
        found: list[Saved] = []
        by_id = {each.id: each for each in self.store.list(subject)}
        at = self.store.head(subject)
        while at is not None and len(found) < len(by_id):
            found.append(saved_of(at))
            at = by_id.get(at.parents[0]) if at.parents else None
        return found

    def subjects(self) -> builtins.list[Subject]:
        known = self.store.subjects()
        return sorted(each.subject for each in known if each.subject.kind == "container")

    def reading(self, subject: Subject) -> AbstractContextManager[None]:
        return nullcontext()  # what is fetched is nobody else's

    def fetch(self, saved: Saved, scratch: Path) -> Path:
        folder = scratch / saved.id
        folder.mkdir(mode=0o700)
        try:
            for part in self.store.show(saved.id).parts:
                path = folder / part.name
                private_folder(path.parent)
                fd = os.open(path, stored.NEW, 0o600)
                try:
                    if part.split == "structure":
                        value = self.store.value(saved.id, part.name)
                        os.write(fd, json.dumps(value).encode())
                    else:
                        self.store.copy_part(saved.id, part.name, fd)
                finally:
                    os.close(fd)
            stored.arrange(folder / MEMORY)
        except OSError as error:
            raise from_os_error(error, "fetching a container's checkpoint") from error
        return folder

    def check(self, saved: Saved) -> None:
        for part in self.store.show(saved.id).parts:
            if part.split == "structure":
                self.store.value(saved.id, part.name)
                continue
            with self.store.open(saved.id, part.name) as stream:
                while stream.read(_READ):
                    pass

    def forget(self, saved: Saved) -> None:
        self.store.delete(saved.id, lease=self._right(saved.subject))

    def keep(self, subject: Subject, count: int) -> None:
        """A store has a retention of its own: `holdfast prune`."""

    def sweep(self) -> None:
        sweep(self._work)

    def ledger(self, subject: Subject) -> Path:
        return self._ledgers / subject.name / "@ledger.json"


def _split(name: str) -> Split:
    if name == LAYER:
        return "content"
    return "pages" if name.startswith("memory/pages-") else "whole"


def saved_of(checkpoint: Checkpoint) -> Saved:
    """A checkpoint of a store, as vaults have them."""
    return Saved(
        checkpoint.id,
        checkpoint.subject,
        checkpoint.time,
        checkpoint.size_bytes,
        checkpoint.reason,
        checkpoint.stored_bytes,
    )
