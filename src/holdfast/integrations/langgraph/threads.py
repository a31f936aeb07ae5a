"""Threads: the checkpoints and pending writes of LangGraph's threads, as records on a store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress

from holdfast.integrations.langgraph import records
from holdfast.integrations.langgraph.line import TAG, Line
from holdfast.integrations.langgraph.records import Record
from holdfast.integrations.langgraph.subjects import KIND, Space, is_cut, space_of
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Corrupt, NotFound, Unsupported
from holdfast.model.subject import Subject
from holdfast.store import Store
from holdfast.store.draft import Draft
from holdfast.store.parts.trees import Plain

log = logging.getLogger("holdfast.langgraph")

PART = "state"
_RUN = "run"  # the tag with the id of the run


class Threads:
    """All threads on one store. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._lines: dict[Subject, Line] = {}

    # finding

    def line(self, subject: Subject) -> Line:
        with self._lock:
            line = self._lines.get(subject)
            if line is None:
                line = self._lines[subject] = Line(self.store, subject, self._name)
            return line

    def latest(self, space: Space) -> Checkpoint | None:
        """Where a thread is now: the head, which a rollback may have moved."""
        head = self.store.head(space.subject)
        if head is not None:
            return head
        ids = self.line(space.subject).ids()
        return ids[max(ids)][-1] if ids else None

    def spaces(self, thread: str | None = None, namespace: str | None = None) -> list[Space]:
        """The namespaces that there are, of one thread or of all, of one name or of any."""
        found = []
        for summary in self.store.subjects():
            space = space_of(summary.subject) if summary.subject.kind == KIND else None
            if space is None:
                continue
            if is_cut(summary.subject) and summary.head is not None:
                try:
                    said = self.record(summary.head)
                except (Corrupt, NotFound, Unsupported) as error:
                    # Only its content tells the whole name of the thread. All others go on.
                    log.warning("%s is left out: its thread's name: %s", summary.subject, error)
                    continue
                space = Space(said.get("thread", space.thread), said.get("namespace", ""))
            if thread in (None, space.thread) and namespace in (None, space.namespace):
                found.append(space)
        return found

    def of_runs(self, space: Space, runs: set[str]) -> set[str]:
        """The ids of the checkpoints that some runs made."""
        ids = self.line(space.subject).ids()
        return {wanted for wanted, stored in ids.items() if stored[-1].tags.get(_RUN) in runs}

    def record(self, stored: Checkpoint) -> Record:
        """What a checkpoint holds. Raises NotFound, Corrupt or Unsupported."""
        record = self.store.value(stored.id, PART)
        if not isinstance(record, dict) or "langgraph" not in record:
            raise Corrupt(f"{stored.short} was not written by LangGraph", where=stored.id)
        found = records.expand(record)
        if found is None:
            raise Unsupported(
                f"{stored.short} was written by a newer Holdfast", hint="upgrade Holdfast"
            )
        return found

    def _name(self, stored: Checkpoint) -> str | None:
        """The id that LangGraph gave to what Holdfast copied: a fork or a rollback."""
        try:
            found = self.record(stored)["checkpoint"]["id"]
        except (NotFound, Corrupt, Unsupported, KeyError, TypeError):
            return None  # something else put it there
        return found if isinstance(found, str) else None

    # changing

    def put(self, space: Space, checkpoint_id: str, record: Record) -> None:
        """Keep a checkpoint, in the place of one with the same id."""
        subject, metadata = space.subject, record["metadata"]
        tags = {TAG: checkpoint_id}
        if isinstance(run := metadata.get("run_id"), str):
            tags[_RUN] = run
        if is_cut(subject):
            record = {**record, "thread": space.thread, "namespace": space.namespace}
        reason = f"{metadata.get('source', 'put')} {metadata.get('step', '')}".strip()
        line = self.line(subject)
        with self._draft(line, record["parent"], reason=reason, tags=tags) as draft:
            draft.put(PART, Plain(records.compact(record)), split="structure")
            made = draft.commit()
        same = line.get(checkpoint_id, look=False)
        self.drop([each for each in same if each.sequence < made.sequence])

    def put_writes(self, space: Space, checkpoint_id: str, record: Record) -> None:
        """Keep writes of a checkpoint beside those that are there."""
        reason = f"writes of {record['task']}"
        with self.store.draft(space.writes, reason=reason, tags={TAG: checkpoint_id}) as draft:
            draft.put(PART, Plain(record), split="structure")
            draft.commit()

    def copy(self, space: Space, target: Space) -> None:
        """Everything of a namespace into another one, the latest checkpoint last."""
        ids = self.line(space.subject).ids()
        head = self.latest(space)
        for wanted, stored in sorted(ids.items(), key=lambda each: each[1][-1] == head):
            self.put(target, wanted, self.record(stored[-1]))
        for wanted, stored in self.line(space.writes).ids().items():
            for each in stored:
                self.put_writes(target, wanted, self.record(each))

    def forget(self, space: Space, ids: set[str]) -> None:
        """Drop checkpoints with all that belongs to them."""
        for subject in (space.subject, space.writes):
            line = self.line(subject).ids()
            self.drop([each for wanted in ids for each in line.get(wanted, ())])

    def drop(self, stored: Sequence[Checkpoint]) -> None:
        """Drop checkpoints; those that are gone already are no error."""
        try:
            if stored:
                self.store.delete(*(each.id for each in stored))
        except NotFound:
            left = {
                each.id
                for subject in {one.subject for one in stored}
                for each in self.store.list(subject)
            }
            self.drop([each for each in stored if each.id in left])

    def _draft(self, line: Line, parent: str | None, *, reason: str, tags: dict[str, str]) -> Draft:
        """One on top of the checkpoint of that id, if there is one. Anybody may let go of it, or
        put it anew, at any moment."""
        for find in (line.last_seen, line.newest):
            with suppress(NotFound):
                if parent is not None and (found := find(parent)):
                    return self.store.draft(line.subject, found, reason=reason, tags=tags)
        return self.store.draft(line.subject, None, reason=reason, tags=tags)
