"""What a session's checkpoints are, and how much memory the worker brought for each."""

from __future__ import annotations

from typing import Any

from holdfast.model.checkpoint import Checkpoint
from holdfast.session.arriving import Coming
from holdfast.session.checkpoints import SessionCheckpoint
from holdfast.session.history import History
from holdfast.store import Store


def parts(store: Store, made: Checkpoint) -> dict[str, tuple[int, str]]:
    """What a checkpoint holds, as hashes; the environment tells the time."""
    found = store.show(made).parts
    return {part.name: (part.size, part.root) for part in found if part.name != "environment"}


class Noted(History):
    """A session's past that knows what its last checkpoint took."""

    brought = memory = 0  # bytes that the worker sent, of all the memory that it has
    parts = 0  # bytes of records that it sent

    # `Any`: a session, async or not.
    @classmethod
    def of(cls, session: Any, store: Store) -> Noted:
        """From now on, the session's checkpoints go there; where they go already, they go on."""
        before, made = session._keeper._history, cls(session.subject, store, None)
        if before.store is store:
            made.__dict__.update(before.__dict__)
        session._keeper._history = made
        return made

    def save(self, captured: Coming, **options: Any) -> SessionCheckpoint:
        captured = captured.all()
        held = captured.memory.values()
        self.memory = sum(each.size for each in held)
        self.parts = sum(map(len, captured.parts.values()))
        self.brought = sum(length for each in held for _, length, _ in each.stretches)
        return super().save(captured, **options)

    def forget(self) -> None:
        """The next checkpoint brings everything, as if there had been none before."""
        self._base = 0
