"""The faces of a store: each verb has one, and all of them hold to the same rights."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.model.errors import Owned, UsageError
from holdfast.store import Store, open_store
from holdfast.store.faces.opened import Opened

FACES = [face for face in Store.__mro__ if issubclass(face, Opened)]


def test_every_verb_has_one_face() -> None:
    homes: dict[str, list[str]] = {}
    for face in FACES:
        for name in vars(face):
            if not name.startswith("_"):
                homes.setdefault(name, []).append(face.__name__)
    shared = {name: faces for name, faces in homes.items() if len(faces) > 1}
    assert shared == {"close": ["Reading", "Opened"]}  # what was read last is written down first
    assert {"list", "value", "rollback", "prune", "export", "draft"} <= homes.keys()


def a_checkpoint(store: Store, subject: str) -> None:
    with store.draft(subject) as draft:
        draft.put("part", b"content")
        draft.commit()


MOVES: dict[str, Callable[..., object]] = {
    "draft": lambda store, **right: store.draft("state/a", **right),
    "restore": lambda store, **right: store.restore("state/a", **right),
    "rollback": lambda store, **right: store.rollback("state/a", "state/a", **right),
    "undo": lambda store, **right: store.undo("state/a", **right),
    "delete": lambda store, **right: store.delete("state/a", **right),
}


@pytest.mark.parametrize("verb", MOVES)
def test_whoever_is_not_the_owner_moves_nothing(verb: str) -> None:
    with open_store("memory://") as store:
        for subject in ("state/a", "state/b"):
            a_checkpoint(store, subject)
        before = store.history("state/a")
        with store.lease("state/a") as mine, store.lease("state/b") as other:
            with pytest.raises(Owned):
                MOVES[verb](store)
            with pytest.raises(UsageError, match="the lease is for state/b"):
                MOVES[verb](store, lease=other)
            assert store.history("state/a") == before
            MOVES[verb](store, lease=mine)
