"""Settings of libraries as cells change them: the frame of a table, and how it is tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast import sync
from holdfast.store import open_store


@dataclass(frozen=True, slots=True)
class Library:
    """Code that imports a library and that changes settings, and an expression that shows them."""

    name: str
    imports: str
    change: str
    look: str


def seen(session: sync.Session, code: str) -> object:
    """A value, or the error instead of it."""
    result = session.execute(code)
    return result.value if result.error is None else result.error.message


class Tried:
    """What settings look like in a fresh process, after a change, after a rollback in place, and
    after two restores, each in a fresh process."""

    def __init__(
        self, libraries: Sequence[Library], folder: Path, python: str | None = None
    ) -> None:
        self._libraries = libraries
        store = open_store(folder)
        with sync.Session("settings", store=store, python=python) as session:
            for library in libraries:
                session.execute(library.imports, check=True)
            self.fresh = self._look(session)
            first = session.checkpoint()
            for library in libraries:
                session.execute(library.change, check=True)
            self.changed = self._look(session)
            made = session.checkpoint()
            session.restore(first)
            self.rolled_back = self._look(session)
        self.told = [i for i in made.report.items if i.outcome not in ("exact", "rebuilt")]
        store.restore(made.id)
        with sync.Session.resume("settings", store=store, python=python) as session:
            self.restored = self._look(session)
            items = session.report or ()
            self.told += [i for i in items if i.outcome not in ("exact", "rebuilt")]
            session.checkpoint()
        with sync.Session.resume("settings", store=store, python=python) as session:
            self.restored_twice = self._look(session)

    def _look(self, session: sync.Session) -> dict[str, object]:
        return {each.name: seen(session, each.look) for each in self._libraries}

    def check(self, name: str) -> None:
        """A library's settings come back, and go away with a rollback."""
        assert self.fresh[name] != self.changed[name], "the change shows"
        assert self.restored[name] == self.changed[name]
        assert self.restored_twice[name] == self.changed[name]
        assert self.rolled_back[name] == self.fresh[name]
