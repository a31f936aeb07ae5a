"""Where a drill takes place, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.model.checkpoint import Checkpoint
from holdfast.store import Store, open_store


@dataclass(frozen=True, slots=True)
class Scratch:
    """A store of its own with nothing in it but the checkpoint, and the file that it came by."""

    store: Store
    checkpoint: Checkpoint
    archive: Path
    trust: bool

    def reopened(self) -> Store:
        """The same store, without what this process remembers of it."""
        return open_store(self.store.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one kind of checkpoint has to say."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    items: int = 0
    tried: bool = True  # brought back for real, and not only read
