"""One tool on one kind of work, in a process of its own: `save`, then `restore` in another, and
only the first `answer` of that in some more.

    python session_tools.py TOOL WORK FOLDER save|restore|answer

The last line of output is what was measured, as JSON. It runs in Kishu's environment, too, so
nothing of Holdfast is imported before it is known that the tool is Holdfast.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cells import Work, all_work

Measured = dict[str, Any]
AWKWARD = "W5"
STARTED = "HOLDFAST_BENCH_STARTED"
FEW = 5  # steps that are saved with tools which write everything each time, and the last one


def since_the_start() -> float:
    """Seconds since this process was started, as whoever did so noted it: a tool that restores into
    its own process needs an interpreter first, as Holdfast's worker does."""
    return time.time() - float(os.environ[STARTED])


def size_of(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


class Clock:
    """Steps as they are measured."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._size = 0
        self.steps: list[float] = []
        self.pauses: list[float] = []
        self.sizes: list[int] = []

    def step(self, seconds: float, pause: float | None = None, added: int | None = None) -> None:
        """`added` is what the step stored; by default what the folder grew by."""
        size = size_of(self._folder) if added is None else self._size + added
        self.steps.append(seconds * 1000)
        self.pauses.append(seconds * 1000 if pause is None else pause)
        self.sizes.append(size - self._size)
        self._size = size

    def measured(self) -> Measured:
        """The first checkpoint is the whole session; all others are steps."""
        return {"steps": self.steps, "pauses": self.pauses, "sizes": self.sizes}


# -- one pickle of everything ------------------------------------------------------------


class Pickled:
    """cloudpickle and dill: the whole namespace as one pickle, with what cannot be left out."""

    def __init__(self, name: str, folder: Path) -> None:
        self._library = importlib.import_module(name)
        self._folder = folder
        self._main = sys.modules["__main__"]
        self._own = set(vars(self._main))

    def _variables(self) -> dict[str, Any]:
        found = vars(self._main)
        return {name: found[name] for name in found if name not in self._own}

    def save(self, work: Work) -> Measured:
        clock, names = Clock(self._folder), vars(self._main)
        for cell in work.setup:
            exec(cell, names)
        self._dump(clock, 0)
        for number, cell in enumerate(work.steps, 1):
            exec(cell, names)
            if number <= FEW or number == len(work.steps):
                self._dump(clock, number)
        return clock.measured()

    def _dump(self, clock: Clock, number: int) -> None:
        before = list(self._folder.glob("*.pickle"))
        path = self._folder / f"{number}.pickle"
        start = time.perf_counter()
        with path.open("wb") as file:
            self._library.dump(self._variables(), file, protocol=5)
            file.flush()
            os.fsync(file.fileno())
        clock.step(time.perf_counter() - start, added=path.stat().st_size)
        for old in before:  # each is the whole session: twenty of them fill a disk
            old.unlink()

    def answer(self, work: Work) -> Measured:
        newest = max(self._folder.glob("*.pickle"), key=lambda path: int(path.stem))
        with newest.open("rb") as file:
            vars(self._main).update(self._library.load(file))
        answer = _try(lambda: eval(work.touch, vars(self._main)))
        return {"restore": since_the_start() * 1000, "answer": repr(answer)}

    def restore(self, work: Work) -> Measured:
        answered = self.answer(work)
        good = _try(lambda: eval(work.check, vars(self._main)))
        return answered | {"right": good is True}

    def save_kinds(self) -> Measured:
        """Each variable by itself, since together a single one that cannot be pickled ends all."""
        names, kept = vars(self._main), 0
        for code, _, variables in _kinds(self._folder):
            exec(code, names)
            for variable in variables:
                try:
                    data = self._library.dumps(names[variable], protocol=5)
                except Exception:  # noqa: BLE001, S112  # the library's failure is the finding
                    continue
                (self._folder / f"{variable}.one").write_bytes(data)
                kept += 1
        try:
            self._library.dumps(self._variables(), protocol=5)
            together = "works"
        except Exception as error:  # noqa: BLE001  # the library's failure is the finding
            together = type(error).__name__
        return {"kept": kept, "together": together}

    def restore_kinds(self) -> Measured:
        names = vars(self._main)
        for path in sorted(self._folder.glob("*.one")):
            try:
                names[path.stem] = self._library.loads(path.read_bytes())
            except Exception:  # noqa: BLE001, S112  # the library's failure is the finding
                continue
        exec("import numpy as np", names)
        return _judged(self._folder, lambda check: eval(check, names))


# -- Kishu -------------------------------------------------------------------------------


class Kishu:
    """Kishu in an IPython shell, with its own tracking of variables."""

    def __init__(self, name: str, folder: Path) -> None:
        os.environ["HOME"] = str(folder)
        from IPython.core.interactiveshell import InteractiveShell
        from kishu.jupyterint import KishuForJupyter  # type: ignore[import-not-found]
        from kishu.notebook_id import NotebookId  # type: ignore[import-not-found]

        self._folder = folder
        self._shell = InteractiveShell.instance()
        place = folder / "bench.ipynb"
        if not place.exists():
            place.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
        self._kishu = KishuForJupyter(NotebookId("bench", place, "bench"), self._shell)
        self._took = 0.0
        before, after = self._kishu.pre_run_cell, self._kishu.post_run_cell
        self._shell.events.register("pre_run_cell", lambda info: self._timed(before, info))
        self._shell.events.register("post_run_cell", lambda result: self._timed(after, result))

    def _timed(self, call: Any, argument: Any) -> None:
        start = time.perf_counter()
        call(argument)
        self._took += time.perf_counter() - start

    def _run(self, cell: str) -> float:
        self._took = 0.0
        result = self._shell.run_cell(cell, store_history=True)
        result.raise_error()
        return self._took

    def save(self, work: Work) -> Measured:
        clock = Clock(self._folder)
        whole = sum(self._run(cell) for cell in work.setup)
        clock.step(whole)
        for cell in work.steps:
            clock.step(self._run(cell))
        return clock.measured()

    def answer(self, work: Work) -> Measured:
        self._checkout()
        answer = _try(lambda: eval(work.touch, self._shell.user_ns))
        return {"restore": since_the_start() * 1000, "answer": repr(answer)}

    def restore(self, work: Work) -> Measured:
        answered = self.answer(work)
        good = _try(lambda: eval(work.check, self._shell.user_ns))
        return answered | {"right": good is True}

    def _checkout(self) -> None:
        from kishu.commands import KishuCommand  # type: ignore[import-not-found]

        newest = KishuCommand.log_all(self._folder / "bench.ipynb").commit_graph[-1].commit_id
        self._kishu.checkout(newest)

    def save_kinds(self) -> Measured:
        kept = 0
        for code, _, variables in _kinds(self._folder):
            try:
                self._run(code)
                kept += len(variables)
            except Exception:  # noqa: BLE001, S112  # its failure is the finding
                continue
        return {"kept": kept, "together": "works"}

    def restore_kinds(self) -> Measured:
        self._checkout()
        return _judged(self._folder, lambda check: eval(check, self._shell.user_ns))


# -- Holdfast ----------------------------------------------------------------------------


class Holdfast:
    """A session on a store in a directory; every checkpoint is durable when it is counted."""

    def __init__(self, name: str, folder: Path) -> None:
        os.environ["HOLDFAST_HOME"] = str(folder / "home")
        from holdfast import sync
        from holdfast.store import open_store

        self._sync = sync
        self._folder = folder / "store"
        self._store = open_store(self._folder)

    def save(self, work: Work) -> Measured:
        clock = Clock(self._folder)
        with self._sync.Session("bench", store=self._store) as session:
            for cell in work.setup:
                session.execute(cell, check=True)
            self._checkpoint(session, clock)
            for cell in work.steps:
                session.execute(cell, check=True)
                self._checkpoint(session, clock)
        return clock.measured()

    def _checkpoint(self, session: Any, clock: Clock) -> None:
        start = time.perf_counter()
        made = session.checkpoint()
        # Not what the folder grew by: small entries lie in room that was made ahead.
        clock.step(time.perf_counter() - start, made.pause_ms, made.checkpoint.stored_bytes)

    def answer(self, work: Work) -> Measured:
        answered, session = self._resumed(work)
        session.shutdown()
        return answered

    def _resumed(self, work: Work) -> tuple[Measured, Any]:
        start = time.perf_counter()
        session = self._sync.Session.resume("bench", store=self._store)
        answer = session.execute(work.touch, check=True).value
        seconds = time.perf_counter() - start
        return {"restore": seconds * 1000, "answer": repr(answer)}, session

    def restore(self, work: Work) -> Measured:
        answered, session = self._resumed(work)
        with session:
            good = session.execute(work.check, check=True).value

            def back() -> Any:
                session.restore()
                return session

            again = [self._answered(back, work)[0] for _ in range(5)]
        return answered | {
            "right": good is True,
            "warm": sorted(again)[2],
            "pool": self._from_a_pool(work),
        }

    def _from_a_pool(self, work: Work) -> float:
        """A process of its own, which has imported already what the session needs."""
        warmup = f"import {work.libraries}" if work.libraries else ""
        took: list[float] = []
        with self._sync.SessionPool(min_idle=1, warmup=warmup, store=self._store) as pool:
            for _ in range(3):
                seconds, session = self._answered(lambda: pool.resume("bench"), work)
                took.append(seconds)
                session.shutdown()
        return sorted(took)[1]

    def _answered(self, restore: Any, work: Work) -> tuple[float, Any]:
        """Milliseconds until the restored session has answered, and the session."""
        time.sleep(1)  # what was restored before is still being verified
        start = time.perf_counter()
        session = restore()
        session.execute(work.touch, check=True)
        return (time.perf_counter() - start) * 1000, session

    def save_kinds(self) -> Measured:
        with self._sync.Session("bench", store=self._store) as session:
            session.execute(f"folder = {str(self._folder)!r}", check=True)
            for code, _, _ in _kinds(self._folder):
                session.execute(code, check=True)
            made = session.checkpoint()
        kept = [item for item in made.report.items if item.outcome != "placeholder"]
        return {"kept": len(kept), "together": "works"}

    def restore_kinds(self) -> Measured:
        with self._sync.Session.resume("bench", store=self._store) as session:
            return _judged(self._folder, lambda check: session.execute(check, check=True).value)


# -- the awkward set ---------------------------------------------------------------------


def _kinds(folder: Path) -> list[tuple[str, str, tuple[str, ...]]]:
    from tests.session.awkward import KINDS

    # A kind whose check fails at once in a plain interpreter would say nothing about a tool.
    vars(sys.modules["__main__"]).setdefault("folder", str(folder))
    return [kind.own(number) for number, kind in enumerate(KINDS)]


def _judged(folder: Path, evaluate: Any) -> Measured:
    checks = [check for _, check, _ in _kinds(folder)]
    return {"right": sum(_try(lambda c=check: evaluate(c)) is True for check in checks),
            "of": len(checks)}  # fmt: skip


def _try(call: Any) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001  # a tool that gives nothing back is a finding
        return f"{type(error).__name__}: {error}"[:100]


TOOLS: dict[str, Any] = {
    "holdfast": Holdfast, "cloudpickle": Pickled, "dill": Pickled, "kishu": Kishu,
}  # fmt: skip


def main() -> None:
    name, work, place, verb = sys.argv[1:]
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    tool = TOOLS[name](name, folder)
    if work == AWKWARD:
        measured = tool.save_kinds() if verb == "save" else tool.restore_kinds()
    else:
        cells = all_work()[work]
        measured = {"save": tool.save, "restore": tool.restore, "answer": tool.answer}[verb](cells)
    print("\n" + json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
