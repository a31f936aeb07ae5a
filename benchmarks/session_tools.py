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
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import kinds
from benchmarks.cells import Work, all_work
from benchmarks.kinds import attempt
from benchmarks.lending import lend

Measured = dict[str, Any]
STARTED = "HOLDFAST_BENCH_STARTED"
TRACKER = "kishu-tracker"  # with what it calls its experimental tracker: quicker, less exact
SETTLED = 3  # seconds after which freed memory has gone back, if it does: Linux does so after two
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
        self.cells: list[float] = []

    def begin(self, work: Work) -> None:
        """Cells come next, and their memory is there. What processes before this one freed may be
        on its way back to the host, beside whoever runs now: that is waited for first."""
        time.sleep(SETTLED)
        lend(work.room)

    def cell(self, run: Callable[[], object]) -> None:
        """Run a cell, without any checkpoint."""
        start = time.perf_counter()
        run()
        self.cells.append((time.perf_counter() - start) * 1000)

    def step(self, seconds: float, pause: float | None = None, added: int | None = None) -> None:
        """`added` is what the step stored; by default what the folder grew by."""
        size = size_of(self._folder) if added is None else self._size + added
        self.steps.append(seconds * 1000)
        self.pauses.append(seconds * 1000 if pause is None else pause)
        self.sizes.append(size - self._size)
        self._size = size

    def skip(self) -> None:
        """What the folder grew by belongs to no step."""
        self._size = size_of(self._folder)

    def measured(self) -> Measured:
        """The first checkpoint is the whole session; all others are steps."""
        found = {"steps": self.steps, "pauses": self.pauses, "sizes": self.sizes}
        return found | {"cells": self.cells}


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
        clock.begin(work)
        for cell in work.setup:
            clock.cell(lambda cell=cell: exec(cell, names))
        self._dump(clock, 0)
        for number, cell in enumerate(work.steps, 1):
            clock.cell(lambda cell=cell: exec(cell, names))
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
        answer = attempt(lambda: eval(work.touch, vars(self._main)))
        return {"restore": since_the_start() * 1000, "answer": repr(answer)}

    def restore(self, work: Work) -> Measured:
        answered = self.answer(work)
        good = attempt(lambda: eval(work.check, vars(self._main)))
        return answered | {"right": good is True}

    def save_kinds(self) -> Measured:
        """All that a kind made as one pickle, since together one that cannot be ends all."""
        names = vars(self._main)
        exec(kinds.beginning(self._folder), names)
        for kind in kinds.kinds():
            before = dict(names)
            exec(kind.code, names)
            made = {name: value for name, value in names.items()
                    if name not in before or before[name] is not value}  # fmt: skip
            data = attempt(lambda made=made: self._library.dumps(made, protocol=5))
            if isinstance(data, bytes):
                (self._folder / f"{kind.number}.kind").write_bytes(data)
        whole = attempt(lambda: self._library.dumps(self._variables(), protocol=5))
        return {"together": None if isinstance(whole, bytes) else f"none: {whole.split(':')[0]}"}

    def restore_kinds(self) -> Measured:
        names = vars(self._main)
        exec(kinds.beginning(self._folder), names)

        def back(kind: kinds.Awkward) -> object:
            saved = (self._folder / f"{kind.number}.kind").read_bytes()
            names.update(self._library.loads(saved))
            return kinds.evaluated(kind.check, names)

        return kinds.judged(back)


# -- Kishu -------------------------------------------------------------------------------


class Kishu:
    """Kishu in an IPython shell, as it is installed, or with the quicker of its two trackers."""

    def __init__(self, name: str, folder: Path) -> None:
        os.environ["HOME"] = str(folder)
        from kishu.storage.config import Config  # type: ignore[import-not-found]

        self._folder = folder
        # There is no notebook in a browser that it would wait for to be saved.
        Config.set("JUPYTERINT", "test_mode", True)
        Config.set("IDGRAPH", "experimental_tracker", name == TRACKER)
        self._begin("bench")

    def _begin(self, notebook: str) -> None:
        """A new shell, and Kishu in it, on what it has of a notebook of this name."""
        from IPython.core.interactiveshell import InteractiveShell
        from kishu.jupyterint import KishuForJupyter  # type: ignore[import-not-found]
        from kishu.notebook_id import NotebookId  # type: ignore[import-not-found]

        InteractiveShell.clear_instance()
        self._shell = InteractiveShell.instance()
        self._place = self._folder / f"{notebook}.ipynb"
        if not self._place.exists():
            self._place.write_text(
                '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
            )
        self._kishu = KishuForJupyter(NotebookId(notebook, self._place, notebook), self._shell)
        self._took = 0.0
        self._failed: Exception | None = None
        before, after = self._kishu.pre_run_cell, self._kishu.post_run_cell
        self._shell.events.register("pre_run_cell", lambda info: self._timed(before, info))
        self._shell.events.register("post_run_cell", lambda result: self._timed(after, result))

    def _timed(self, call: Any, argument: Any) -> None:
        start = time.perf_counter()
        try:
            call(argument)
        except Exception as error:  # the shell would print it, and go on
            self._failed = error
            raise
        self._took += time.perf_counter() - start

    def _run(self, cell: str) -> float:
        self._took, self._failed = 0.0, None
        result = self._shell.run_cell(cell, store_history=True)
        result.raise_error()
        if self._failed is not None:
            raise self._failed
        return self._took

    def save(self, work: Work) -> Measured:
        clock = Clock(self._folder)
        clock.begin(work)
        whole = sum(self._run(cell) for cell in work.setup)
        clock.step(whole)
        few, others = work.steps[:FEW], work.steps[FEW:]
        for cell in few:
            clock.step(self._run(cell))
        if others[:-1]:
            self._run("\n".join(others[:-1]))
            clock.skip()
        for cell in others[-1:]:
            clock.step(self._run(cell))
        return clock.measured()

    def answer(self, work: Work) -> Measured:
        self._checkout()
        answer = attempt(lambda: eval(work.touch, self._shell.user_ns))
        return {"restore": since_the_start() * 1000, "answer": repr(answer)}

    def restore(self, work: Work) -> Measured:
        answered = self.answer(work)
        good = attempt(lambda: eval(work.check, self._shell.user_ns))
        return answered | {"right": good is True}

    def _checkout(self) -> None:
        from kishu.commands import KishuCommand  # type: ignore[import-not-found]

        newest = KishuCommand.log_all(self._place).commit_graph[-1].commit_id
        self._kishu.checkout(newest)

    def save_kinds(self) -> Measured:
        """A notebook for each kind, since one that it cannot look at ends its commits."""
        first = kinds.beginning(self._folder)
        for kind in kinds.kinds():
            self._notebook(f"kind{kind.number}", first, kind.code)
        self._notebook("all", first, *(kind.code for kind in kinds.kinds()))
        return {}

    def _notebook(self, name: str, *cells: str) -> None:
        self._begin(name)
        for cell in cells:
            attempt(lambda cell=cell: self._run(cell))

    def restore_kinds(self) -> Measured:
        def back(kind: kinds.Awkward) -> object:
            self._begin(f"kind{kind.number}")
            self._checkout()
            return kinds.evaluated(kind.check, self._shell.user_ns)

        apart = kinds.judged(back)
        self._begin("all")
        attempt(self._checkout)
        names = self._shell.user_ns
        together = kinds.judged(lambda kind: kinds.evaluated(kind.check, names))
        return apart | {"together": str(together["right"])}


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
            clock.begin(work)
            for cell in work.setup:
                clock.cell(lambda cell=cell: session.execute(cell, check=True))
            self._checkpoint(session, clock)
            for cell in work.steps:
                clock.cell(lambda cell=cell: session.execute(cell, check=True))
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
        lend(work.room)
        start = time.perf_counter()
        session = restore()
        session.execute(work.touch, check=True)
        return (time.perf_counter() - start) * 1000, session

    def save_kinds(self) -> Measured:
        """All of them in one session."""
        with self._sync.Session("bench", store=self._store) as session:
            session.execute(kinds.beginning(self._folder), check=True)
            for kind in kinds.kinds():
                session.execute(kind.code, check=True)
            session.checkpoint()
        return {}

    def restore_kinds(self) -> Measured:
        with self._sync.Session.resume("bench", store=self._store) as session:
            lost = [item for item in session.report.items if item.outcome == "placeholder"]
            found = kinds.judged(lambda kind: session.execute(kind.check, check=True).value)
        return found | {"named": len(lost)}


TOOLS: dict[str, Any] = {
    "holdfast": Holdfast, "cloudpickle": Pickled, "dill": Pickled, "kishu": Kishu, TRACKER: Kishu,
}  # fmt: skip


def main() -> None:
    name, work, place, verb = sys.argv[1:]
    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    tool = TOOLS[name](name, folder)
    if work == kinds.NAME:
        measured = tool.save_kinds() if verb == "save" else tool.restore_kinds()
    else:
        cells = all_work()[work]
        measured = {"save": tool.save, "restore": tool.restore, "answer": tool.answer}[verb](cells)
    print("\n" + json.dumps(measured), flush=True)


if __name__ == "__main__":
    main()
