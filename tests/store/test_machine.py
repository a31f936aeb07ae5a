"""The store beside a plain dict: whatever is done to both, they say the same."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from obstore.store import MemoryStore

from holdfast.model.errors import Conflict, NotFound
from holdfast.store.backends.contract import Backend
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.backends.memory import MemoryBackend
from holdfast.store.backends.objects.backend import ObjectBackend
from holdfast.store.backends.objects.bucket import Bucket
from holdfast.store.backends.objects.cache import Cache
from holdfast.store.keys import Key, Keyring
from holdfast.store.retention import Last, Tagged
from holdfast.store.store import Store
from holdfast.testing.strategies import BYTE_SPLITS, contents, part_names, values

KEYRING = Keyring(Key(b"k" * 32))
NAMES = ("state/a", "state/b", "session/c")
FORKS = ("x", "y")


@dataclass
class Model:
    """A checkpoint as a dict would have it."""

    subject: str
    parent: str | None
    parts: dict[str, Any]
    number: int
    rollback_of: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    pinned: bool = False


class StoreMachine(RuleBasedStateMachine):
    """What a store may be asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[str, Model] = {}
        self.heads: dict[str, str | None] = {}
        self.moves: dict[str, list[tuple[str | None, str | None]]] = {}
        self.count = 0
        self.store = Store(self.open(), KEYRING)

    def open(self) -> Backend:
        raise AssertionError("each machine opens a backend of its own")

    # -- writing

    parts = st.dictionaries(
        part_names(),
        st.tuples(st.sampled_from(BYTE_SPLITS), contents())
        | st.tuples(st.just("structure"), values()),
        min_size=1,
        max_size=3,
    )

    @rule(subject=st.sampled_from(NAMES), parts=parts)
    def checkpoint(self, subject: str, parts: dict[str, tuple[Any, Any]]) -> None:
        with self.store.draft(subject, reason="rule") as draft:
            for name, (split, content) in parts.items():
                draft.put(name, content, split)
            saved = draft.commit()
        contained = {name: content for name, (_, content) in parts.items()}
        self.added(saved.id, subject, self.heads.get(subject), contained)

    @rule(data=st.data(), more=contents())
    @precondition(lambda self: any(self.heads.values()))
    def keep(self, data: st.DataObject, more: bytes) -> None:
        """Take one part over, and change another."""
        subject = data.draw(st.sampled_from(sorted(s for s, head in self.heads.items() if head)))
        parent = self.heads[subject]
        assert parent is not None
        before = self.models[parent].parts
        name = data.draw(st.sampled_from(sorted(before)))
        with self.store.draft(subject) as draft:
            draft.keep(name)
            draft.put("more", more, "pages") if name != "more" else None
            saved = draft.commit()
        contained = {name: before[name], **({"more": more} if name != "more" else {})}
        self.added(saved.id, subject, parent, contained)

    @rule(subject=st.sampled_from(NAMES), content=contents())
    def give_up(self, subject: str, content: bytes) -> None:
        """A draft that is not committed leaves nothing."""
        with self.store.draft(subject) as draft:
            draft.put("never", content, "segment")

    # -- moving heads

    @rule(data=st.data())
    @precondition(lambda self: self.models)
    def restore(self, data: st.DataObject) -> None:
        one = self.any(data)
        assert self.store.restore(one).id == one
        self.moved(self.models[one].subject, one)

    @rule(subject=st.sampled_from(NAMES))
    def rollback(self, subject: str) -> None:
        target = self.rollback_target(subject)
        if target is None:
            with pytest.raises(NotFound):
                self.store.rollback(subject)
            return
        saved = self.store.rollback(subject)
        model = self.added(saved.id, subject, self.heads[subject], self.models[target].parts)
        model.rollback_of = target

    @rule(subject=st.sampled_from(NAMES))
    def undo(self, subject: str) -> None:
        moves = self.moves.get(subject, [])
        if not moves or (moves[-1][0] is not None and moves[-1][0] not in self.models):
            with pytest.raises(NotFound):
                self.store.undo(subject)
            return
        before = moves[-1][0]
        assert self.store.undo(subject).after == before
        self.moved(subject, before)

    @rule(data=st.data(), name=st.sampled_from(FORKS))
    @precondition(lambda self: self.models)
    def fork(self, data: st.DataObject, name: str) -> None:
        one = self.any(data)
        subject = f"{self.models[one].subject.split('/')[0]}/{name}"
        if any(model.subject == subject for model in self.models.values()):
            with pytest.raises(Conflict):
                self.store.fork(one, name)
            return
        saved = self.store.fork(one, name)
        self.added(saved.id, subject, one, self.models[one].parts)

    # -- labels, and letting go

    @rule(data=st.data(), value=st.text(max_size=5))
    @precondition(lambda self: self.models)
    def tag(self, data: st.DataObject, value: str) -> None:
        one = self.any(data)
        self.models[one].tags["tag"] = value
        assert self.store.tag(one, "tag", value).tags == self.models[one].tags

    @rule(data=st.data())
    @precondition(lambda self: self.models)
    def untag(self, data: st.DataObject) -> None:
        one = self.any(data)
        if "tag" not in self.models[one].tags:
            with pytest.raises(NotFound):
                self.store.untag(one, "tag")
            return
        del self.models[one].tags["tag"]
        assert self.store.untag(one, "tag").tags == {}

    @rule(data=st.data(), pinned=st.booleans())
    @precondition(lambda self: self.models)
    def pin(self, data: st.DataObject, pinned: bool) -> None:
        one = self.any(data)
        self.models[one].pinned = pinned
        assert (self.store.pin if pinned else self.store.unpin)(one).pinned is pinned

    @rule(data=st.data())
    @precondition(lambda self: self.models)
    def delete(self, data: st.DataObject) -> None:
        doomed = data.draw(st.lists(st.sampled_from(sorted(self.models)), max_size=3, unique=True))
        self.store.delete(*doomed)
        subjects = {self.models[one].subject for one in doomed}
        for one in doomed:
            del self.models[one]
        for subject in subjects:
            if (head := self.heads[subject]) in doomed:
                left = self.store.head(subject)
                assert left is None or self.models[left.id].subject == subject
                self.moved(subject, left.id if left else None)
            else:
                assert self.head(subject) == head

    @rule(count=st.integers(1, 4))
    def prune(self, count: int) -> None:
        kept: set[str] = set()
        for subject in self.heads:
            mine = sorted(self.of(subject), key=lambda one: self.models[one].number)
            kept.update(mine[-count:], filter(None, [self.heads[subject]]))
        kept |= {one for one, model in self.models.items() if model.pinned or model.tags}
        report = self.store.prune(Last(count) | Tagged())
        assert {one.id for one in report.removed} == self.models.keys() - kept
        assert report.pending_bytes == 0
        for one in self.models.keys() - kept:
            del self.models[one]

    # -- looking

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store(self.open(), KEYRING)

    @rule(data=st.data())
    @precondition(lambda self: self.models)
    def look(self, data: st.DataObject) -> None:
        self.compare(self.any(data))

    @rule(deep=st.booleans())
    def verify(self, deep: bool) -> None:
        assert self.store.verify(deep=deep).problems == ()

    @invariant()
    def the_same_is_there(self) -> None:
        listed = self.store.list()
        assert [one.id for one in listed] == sorted(
            self.models, key=lambda one: self.models[one].number, reverse=True
        )
        for one in listed:
            model = self.models[one.id]
            assert str(one.subject) == model.subject
            assert one.parents == ((model.parent,) if model.parent else ())
            assert (one.tags, one.pinned) == (model.tags, model.pinned)
            assert one.rollback_of == model.rollback_of
        for subject, head in self.heads.items():
            assert self.head(subject) == head

    def teardown(self) -> None:
        for one in self.models:
            self.compare(one)
        assert self.store.verify(deep=True).problems == ()
        self.store.close()

    # -- inside

    def any(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.models)))

    def of(self, subject: str) -> list[str]:
        return [one for one, model in self.models.items() if model.subject == subject]

    def head(self, subject: str) -> str | None:
        head = self.store.head(subject)
        return head.id if head else None

    def added(self, one: str, subject: str, parent: str | None, parts: dict[str, Any]) -> Model:
        self.count += 1
        self.models[one] = model = Model(subject, parent, dict(parts), self.count)
        self.moved(subject, one)
        return model

    def moved(self, subject: str, after: str | None) -> None:
        self.moves.setdefault(subject, []).append((self.heads.get(subject), after))
        self.heads[subject] = after

    def rollback_target(self, subject: str) -> str | None:
        base = self.heads.get(subject)
        while base in self.models and self.models[base].rollback_of is not None:
            base = self.models[base].rollback_of
        target = self.models[base].parent if base in self.models else None
        return target if target in self.models else None

    def compare(self, one: str) -> None:
        model = self.models[one]
        assert {part.name for part in self.store.show(one).parts} == model.parts.keys()
        for name, content in model.parts.items():
            if isinstance(content, bytes) and self.split(one, name) != "structure":
                assert self.store.read(one, name) == content
                with self.store.map(one, name, verify="first") as mapping:
                    assert mapping.view == content
            else:
                assert self.store.value(one, name) == content

    def split(self, one: str, name: str) -> str:
        return next(part.split for part in self.store.show(one).parts if part.name == name)


class MemoryMachine(StoreMachine):
    def open(self) -> Backend:
        self.backend = getattr(self, "backend", None) or MemoryBackend()
        return self.backend


class LocalMachine(StoreMachine):
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-machine-"))
        super().__init__()

    def open(self) -> Backend:
        return LocalBackend(self.folder / "store")

    def teardown(self) -> None:
        try:
            super().teardown()
            assert list((self.folder / "store/holds").iterdir()) == []
        finally:
            shutil.rmtree(self.folder)


class ObjectMachine(StoreMachine):
    """In a bucket, with bundles that are written and merged all the time, and a small cache."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-machine-"))
        self.bucket = MemoryStore()
        super().__init__()

    def open(self) -> Backend:
        return ObjectBackend(
            "s3://bucket",
            lambda: Bucket(self.bucket),
            lambda store_id: Cache(self.folder / store_id, 500_000),
            bundle=3,
            linger=0,
        )

    def teardown(self) -> None:
        try:
            super().teardown()
            assert Bucket(self.bucket).listed("holds") == []
        finally:
            shutil.rmtree(self.folder)


LENGTH = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TestMemory = MemoryMachine.TestCase
TestMemory.settings = LENGTH
TestLocal = LocalMachine.TestCase
TestLocal.settings = LENGTH
TestObjects = ObjectMachine.TestCase
TestObjects.settings = settings(LENGTH, max_examples=12)


@pytest.mark.soak
class TestMemoryForLong(MemoryMachine.TestCase):
    settings = settings(LENGTH, max_examples=400, stateful_step_count=60)


@pytest.mark.soak
class TestLocalForLong(LocalMachine.TestCase):
    settings = settings(LENGTH, max_examples=400, stateful_step_count=60)


@pytest.mark.soak
class TestObjectsForLong(ObjectMachine.TestCase):
    settings = settings(LENGTH, max_examples=400, stateful_step_count=60)
