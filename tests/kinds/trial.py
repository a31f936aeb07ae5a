"""The same kinds through a session, dill and cloudpickle, and without any of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tests.kinds.environment import python
from tests.kinds.kind import Group, Kind

from holdfast import sync
from holdfast.model.errors import HoldfastError
from holdfast.store import Store, open_store

OBSERVER = Path(__file__).with_name("observer.py")
PEERS = ("dill", "cloudpickle")
CAPTURE = 60.0  # seconds, after which a capture is taken for one that does not end
USE = 60.0
WHOLE = 900.0

Outcome = Literal["good", "placeholder", "wrong", "ends", "refused"]
_WORST = ("exact", "rebuilt", "skipped", "placeholder")


@dataclass(frozen=True, slots=True)
class Found:
    """What became of one kind, and what says so.

    good: used, it does as it did before. placeholder: the report says that it is not there, and
    why. refused: the tool raises. wrong: it was called right, and differs. ends: it ends the
    capture, the worker or the restore.
    """

    outcome: Outcome
    why: str = ""


Reports = dict[str, tuple[str, str]]  # outcome and reason
Seen = dict[str, Any]  # what was seen by a kind's own name


class Workshop:
    """A folder for a group's trials."""

    def __init__(self, folder: Path, group: Group, kinds: Sequence[Kind] | None = None) -> None:
        self.group = group
        self.kinds = tuple(group.kinds if kinds is None else kinds)
        self._folder = folder
        self._count = 0
        folder.mkdir(parents=True, exist_ok=True)

    def place(self, name: str) -> Path:
        """A new folder."""
        self._count += 1
        made = self._folder / f"{name}-{self._count}"
        made.mkdir()
        return made

    # -- without any tool ------------------------------------------------------------------

    def alone(self) -> Seen:
        """What is seen without any tool. Raises AssertionError for a kind that cannot be made."""
        lines = self._observe("alone", "save", self.kinds, self.place("alone"))
        seen = {own: value for own, word, value in lines if word == "seen"}
        unmade = {own: value for own, word, value in lines if word == "unmade"}
        wrong = {}
        for kind in self.kinds:
            observed = seen.get(kind.own, [])
            raised = [each for each in observed if isinstance(each, list) and "raised" in each[:1]]
            if kind.own in unmade or raised or not observed:
                wrong[kind.title] = unmade.get(kind.own) or raised or "nothing was seen"
        assert not wrong, f"these cannot be made or used without any tool: {wrong}"
        return seen

    def _observe(
        self, tool: str, verb: str, kinds: Iterable[Kind], folder: Path
    ) -> list[tuple[str, str, Any]]:
        plan, out = folder / f"plan-{verb}.json", folder / f"seen-{verb}.jsonl"
        plan.write_text(json.dumps(plan_of(self.group, kinds)), "utf-8")
        out.touch()
        before = out.stat().st_size
        places = [str(each) for each in (plan, out, folder)]
        ended = subprocess.run(
            [python(), str(OBSERVER), tool, verb, *places],
            capture_output=True,
            text=True,
            timeout=WHOLE,
            check=False,
            cwd=folder,
        )
        if ended.returncode and tool == "alone":
            print(ended.stderr[-3000:], file=sys.stderr)
        with out.open(encoding="utf-8") as file:
            file.seek(before)
            return [tuple(json.loads(line)) for line in file]

    # -- dill and cloudpickle --------------------------------------------------------------

    def peer(self, tool: str, expected: Seen) -> dict[str, Found]:
        """Each kind by itself, as one pickle, loaded in another process."""
        folder = self.place(tool)
        found: dict[str, Found] = {}
        done = self._steps(tool, "save", self.kinds, folder, found)
        saved = [kind for kind in self.kinds if kind.own in done]
        seen = self._steps(tool, "load", saved, folder, found)
        for kind in saved:
            if kind.own in seen:
                differs = difference(expected[kind.own], seen[kind.own])
                found[kind.own] = Found("wrong" if differs else "good", differs)
        return found

    def _steps(
        self, tool: str, verb: str, kinds: Iterable[Kind], folder: Path, found: dict[str, Found]
    ) -> Seen:
        """One process after the other, each after the kind that ended the one before it."""
        left, done = list(kinds), {}
        good = "saved" if verb == "save" else "seen"
        while left:
            lines = self._observe(tool, verb, left, folder)
            begun = [own for own, word, _ in lines if word == "begun"]
            for own, word, value in lines:
                if word == good:
                    done[own] = value
                elif word == "failed":
                    found[own] = Found("refused", value)
            if not begun:
                raise AssertionError(f"{tool} {verb} did not begin with {left[0].name}")
            if begun[-1] not in done and begun[-1] not in found:
                found[begun[-1]] = Found("ends", f"the process ended ({verb})")
            left = [kind for kind in left if kind.own not in begun]
        return done

    # -- a session -------------------------------------------------------------------------

    def session(self, expected: Seen) -> dict[str, Found]:
        """All kinds in one session, used in a fresh worker; half of them at a time where one ends
        the capture, until it is known which."""
        return self._captured(self.kinds, expected)

    def _captured(self, kinds: Sequence[Kind], expected: Seen) -> dict[str, Found]:
        folder, store = self.place("session"), open_store("memory://")
        try:
            reports = self._make(kinds, folder, store)
        except (HoldfastError, Broken) as error:
            if len(kinds) == 1:
                return {kinds[0].own: Found("ends", f"{error}")}
            half = len(kinds) // 2
            return self._captured(kinds[:half], expected) | self._captured(kinds[half:], expected)
        return self._used(kinds, folder, store, reports, expected)

    def _make(self, kinds: Sequence[Kind], folder: Path, store: Store) -> Reports:
        with sync.Session("kinds", store=store, python=python(), cwd=folder) as session:
            session.execute(f"folder = {str(folder)!r}\n{self.group.setup}", check=True)
            for kind in kinds:
                session.execute(kind.named(kind.make), check=True, timeout=USE)
            try:
                report = session.checkpoint(timeout=CAPTURE).report
            finally:
                if not session.alive:
                    raise Broken("the capture ended the worker")
            found: Reports = {}
            for kind in kinds:
                items = [item for item in report if item.name.startswith(kind.own)]
                worst = max(items, key=lambda item: _WORST.index(item.outcome))
                found[kind.own] = worst.outcome, worst.reason
            assert session.pid is not None
            os.kill(session.pid, signal.SIGKILL)  # nothing is closed or put in order at its end
            return found

    def _used(
        self,
        kinds: Sequence[Kind],
        folder: Path,
        store: Store,
        reports: Reports,
        expected: Seen,
    ) -> dict[str, Found]:
        found: dict[str, Found] = {}
        out = folder / "seen.jsonl"
        left = list(kinds)
        while left:
            with sync.Session.resume("kinds", store=store, python=python(), cwd=folder) as session:
                said = {item.name: item for item in session.report or ()}
                look = _LOOK.format(folder=str(OBSERVER.parent), own=str(folder))
                session.execute(look, check=True)
                while left:
                    kind = left.pop(0)
                    code = kind.named(kind.use)
                    result = session.execute(
                        f"_observer.note({str(out)!r}, {kind.own!r}, {code!r}, globals())",
                        timeout=USE,
                    )
                    if not session.alive or result.error:
                        found[kind.own] = Found("ends", f"{result.error}")
                        break
                    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
                    _, _, seen = lines[-1]
                    outcome, why = reports[kind.own]
                    if kind.own in said and said[kind.own].outcome == "placeholder":
                        outcome, why = "placeholder", said[kind.own].reason
                    differs = difference(expected[kind.own], seen)
                    if not differs:
                        found[kind.own] = Found("good", why if outcome != "exact" else "")
                    elif outcome in ("placeholder", "skipped"):
                        found[kind.own] = Found("placeholder", why)
                    else:
                        found[kind.own] = Found("wrong", f"{outcome}: {differs}")
        return found


_LOOK = """
import sys
sys.path.append({folder!r})
import observer as _observer
sys.path.remove({folder!r})
_observer.FOLDER = {own!r}
"""


class Broken(Exception):
    """The session could not be captured."""


def plan_of(group: Group, kinds: Iterable[Kind]) -> dict[str, Any]:
    """What the observer is told."""
    told = [
        {"own": kind.own, "make": kind.named(kind.make), "use": kind.named(kind.use)}
        for kind in kinds
    ]
    return {"setup": group.setup, "kinds": told}


def difference(expected: list[Any], seen: list[Any]) -> str:
    """The first observation that is not what it was."""
    for number, (before, after) in enumerate(zip(expected, seen, strict=False)):
        if before != after:
            return f"observation {number}: {_short(before)} became {_short(after)}"
    return "" if len(expected) == len(seen) else f"{len(seen)} of {len(expected)} observations"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) < 300 else f"{text[:300]}..."


Table = dict[str, dict[str, dict[str, str]]]  # by a kind's title and a tool's name


def tried(folder: Path, group: Group, tools: Sequence[str] = ("holdfast", *PEERS)) -> Table:
    """What each tool makes of each kind of a group."""
    workshop = Workshop(folder, group)
    expected = workshop.alone()
    results = {
        tool: workshop.session(expected) if tool == "holdfast" else workshop.peer(tool, expected)
        for tool in tools
    }
    shutil.rmtree(folder, ignore_errors=True)
    return {
        kind.title: {tool: asdict(results[tool][kind.own]) for tool in tools}
        for kind in group.kinds
    }
