"""Objects that follow each other: the frame of a table, and how it is tried."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.session.settings_of import seen

from holdfast import sync
from holdfast.store import open_store


@dataclass(frozen=True, slots=True)
class Tie:
    """Code that makes objects, and an expression that changes some and looks at the others."""

    name: str
    make: str
    use: str


class Tried:
    """What following looks like before a checkpoint, and after it in a fresh process."""

    def __init__(self, ties: tuple[Tie, ...], folder: Path, python: str | None = None) -> None:
        store = open_store(folder)
        with sync.Session("ties", store=store, python=python) as session:
            for tie in ties:
                session.execute(tie.make, check=True)
            made = session.checkpoint()
            self.report = made.report
            self.before = {tie.name: repr(seen(session, tie.use)) for tie in ties}
        store.restore(made.id)
        with sync.Session.resume("ties", store=store, python=python) as session:
            again = session.checkpoint()
            self.after = {tie.name: repr(seen(session, tie.use)) for tie in ties}
        store.restore(again.id)
        with sync.Session.resume("ties", store=store, python=python) as session:
            self.twice = {tie.name: repr(seen(session, tie.use)) for tie in ties}

    def check(self, name: str) -> None:
        """All follow as they did, and each variable is called exact."""
        assert "Error" not in self.before[name]
        assert self.after[name] == self.before[name]
        assert self.twice[name] == self.before[name]
