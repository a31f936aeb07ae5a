"""Live sessions beside Kishu, dill and cloudpickle: what a checkpoint costs after every step.

    python benchmarks/session.py [--rounds 1] [--work W1,W2,...] [--tools holdfast,...] [--out DIR]

Every tool runs the same cells, each in a process of its own, and restores in another one. All take
turns within a round; what counts are the ratios. `--out docs/benchmarks` writes the page itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import kinds, limits, measure
from benchmarks.cells import Work, all_work
from benchmarks.lending import lend
from benchmarks.limits import Limits
from benchmarks.session_tools import STARTED, TRACKER

TOOLS = ("holdfast", "kishu", TRACKER, "cloudpickle", "dill")
PLAIN = "cloudpickle"  # runs the cells with `exec`
LIGHT = "physical limit"  # no tool: what this machine needs for the bytes and the imports alone
KISHU = Path(__file__).resolve().parent.parent / ".cache/peers/kishu/bin/python"
LIMIT = 300.0  # seconds for one tool on one kind of work
AGAIN = 4  # more restores in fresh processes, whatever the tool, where one takes less than this:
QUICK = 2000.0  # ms
CELLS = ("W1", "W2")  # where running cells is compared with `exec`, and
TURNS = 5  # so often, by turns: one run of each varies by more than is asked

KINDS = 0.85  # of the awkward kinds that come back

# What each kind of work should cost at most: ms a step, ms the user waits, MB a step, and ms until
# a fresh process answers.
GOALS: dict[str, tuple[float, float | None, float, float | None]] = {
    "W1": (5, 5, 1, 50),
    "W2": (5, 2, 1, 100),
    "W2s": (100, None, 2, None),
    "4GB": (float("inf"), None, 1, 200),
    "W3": (50, None, 6, 1000),
    "W4": (float("inf"), 10, 0.1, 600),
}


@dataclass(frozen=True)
class Row:
    """One tool on one kind of work; None where it failed."""

    first: float
    step: float
    pause: float
    megabytes: float
    restore: float | None  # until a fresh process has answered
    warm: float | None  # until a running one has
    pool: float | None  # and one of a pool that had the libraries imported
    right: bool


@dataclass(frozen=True)
class Cells:
    """What running the cells of a work takes, without any checkpoint, in ms."""

    all: float
    one: float  # of a step


def run(tool: str, work: str, folder: Path, verb: str) -> dict[str, Any] | str:
    """One process; a text says how it failed."""
    python = str(KISHU) if tool in ("kishu", TRACKER) else sys.executable
    child = str(Path(__file__).with_name("session_tools.py"))
    command = [python, child, tool, work, str(folder), verb]
    if work in all_work():
        lend(all_work()[work].room)  # before the start is noted: nobody waits for it
    try:
        environment = {**os.environ, STARTED: str(time.time())}
        # As installed packages are: compiled once, and not in every process that starts.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(folder.parent / "bytecode")
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not within {LIMIT:.0f} s"
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return (done.stderr.strip().splitlines() or ["it ended without a word"])[-1][:120]
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def row(tool: str, work: str, scratch: Path) -> Row | str:
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        saved = run(tool, work, Path(place), "save")
        if isinstance(saved, str):
            return saved
        os.sync()
        back = run(tool, work, Path(place), "restore")
        restored = back if isinstance(back, dict) else {}
        # One of them says little: what else the machine does is as large as the whole.
        more = AGAIN if restored.get("restore", QUICK) < QUICK else 0
        again = [run(tool, work, Path(place), "answer") for _ in range(more)]
    failed = [each for each in again if isinstance(each, str)]
    took = [restored.get("restore"), *(each["restore"] for each in again if isinstance(each, dict))]
    same = all(isinstance(each, str) or each["answer"] == restored["answer"] for each in again)
    return Row(
        first=saved["steps"][0],
        step=statistics.median(saved["steps"][1:]),
        pause=statistics.median(saved["pauses"][1:]),
        megabytes=statistics.median(saved["sizes"][1:]) / 1e6,
        restore=None if took[0] is None or failed else statistics.median(took),
        warm=restored.get("warm"),
        pool=restored.get("pool"),
        right=bool(restored.get("right")) and same and not failed,
    )


def cells(work: str, scratch: Path, turns: int = TURNS) -> dict[str, Cells]:
    """Medians for a session, and for a peer that runs cells with `exec` in its own process."""
    found: dict[str, list[Cells]] = {}
    for turn in range(turns):
        for tool in ("holdfast", PLAIN) if turn % 2 else (PLAIN, "holdfast"):
            print(f"cells, turn {turn + 1}: {work}, {tool}", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=scratch) as place:
                saved = run(tool, work, Path(place), "save")
            if isinstance(saved, str):
                raise SystemExit(f"{tool} did not run the cells of {work}: {saved}")
            took, steps = saved["cells"], len(all_work()[work].steps)
            found.setdefault(tool, []).append(Cells(sum(took), statistics.median(took[-steps:])))
    return {
        tool: Cells(
            statistics.median(each.all for each in seen),
            statistics.median(each.one for each in seen),
        )
        for tool, seen in found.items()
    }


@dataclass(frozen=True)
class Back:
    """How many of the awkward kinds came back right."""

    right: int
    of: int
    named: int | None  # variables that are missing and said to be; peers say nothing
    together: str  # what became of all of them in one session, where that is another matter

    def __str__(self) -> str:
        said = f"{self.right} of {self.of} come back right"
        if self.named is not None:
            named = f"{self.named} variables are named as missing, and why"
            return f"{said}, all in one session; {named}"
        return f"{said}, each kind by itself; all together {self.together}"


def awkward(tool: str, scratch: Path) -> Back | str:
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        saved = run(tool, kinds.NAME, Path(place), "save")
        back = run(tool, kinds.NAME, Path(place), "restore") if isinstance(saved, dict) else saved
    if isinstance(back, str) or isinstance(saved, str):
        return str(back)
    together = (saved | back).get("together")
    return Back(back["right"], back["of"], back.get("named"), str(together))


def physical(light: Limits, work: Work) -> Row:
    """What nothing can be quicker than: the bytes that changed, the imports, what must be made."""
    return Row(
        first=light.sync + work.whole / light.writing * 1e3,
        step=light.sync + work.changed / light.writing * 1e3,
        pause=work.dirty / light.copying * 1e3,
        megabytes=work.changed / 1e6,
        restore=light.answers[work.libraries]
        + work.filled / light.filling * 1e3
        + work.texts / light.texts * 1e3,
        warm=None,
        pool=None,
        right=True,
    )


def middle(rows: Iterable[Row | str]) -> Row | str:
    """The median of each figure; a failure in any round stands for all."""
    found = list(rows)
    for each in found:
        if isinstance(each, str):
            return each
    good = [each for each in found if isinstance(each, Row)]

    def median(name: str) -> float | None:
        values = [getattr(each, name) for each in good]
        return None if None in values else statistics.median(values)

    figures = {name: median(name) for name in Row.__annotations__ if name != "right"}
    return Row(right=all(each.right for each in good), **figures)  # type: ignore[arg-type]


HEAD = (
    "| | first, ms | a step, ms | of that waiting, ms | a step, MB | restore: fresh process, ms"
    " | from a warm pool | into a running worker | right |"
)


def table(found: dict[str, dict[str, Row | str]]) -> str:
    lines: list[str] = []
    for name, rows in found.items():
        lines += ["", f"**{name}**: {all_work()[name].what}", "", HEAD, "|---" * 9 + "|"]
        for tool, each in rows.items():
            if isinstance(each, str):
                lines.append(f"| {tool} | {each} | | | | | | | |")
                continue
            back = [_shown(value) for value in (each.restore, each.pool, each.warm)]
            right = "" if tool == LIGHT else "yes" if each.right else "**no**"
            lines.append(
                f"| {tool} | {each.first:.0f} | {each.step:.1f} | {each.pause:.1f}"
                f" | {each.megabytes:.3f} | {' | '.join(back)} | {right} |"
            )
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def goals(found: dict[str, dict[str, Row | str]]) -> list[str]:
    lines: list[str] = []
    for name, rows in found.items():
        ours = rows.get("holdfast")
        if not isinstance(ours, Row):
            continue
        step, pause, megabytes, restore = GOALS[name]
        back = ours.warm if name == "W1" else ours.restore
        light = rows.get(LIGHT)
        wanted = [
            ("a step takes", ours.step, step, "ms"),
            ("the user waits", ours.pause, pause, "ms"),
            ("a step adds", ours.megabytes, megabytes, "MB"),
            ("a restore answers after", back, restore, "ms"),
        ]
        for what, value, most, unit in wanted:
            if most is None or most == float("inf") or value is None:
                continue
            said = "reached" if value <= most else "**missed**"
            line = f"- {said}: {name}, {what} {value:.2f} {unit}, at most {most:g}"
            if value > most and isinstance(light, Row):
                line += _limit(what, value, ours, light)
            lines.append(line)
        if not ours.right:
            lines.append(f"- **missed**: {name}, what came back is not what was saved")
        if isinstance(light, Row) and ours.restore and light.restore:
            more = ours.restore - light.restore
            lines.append(
                f"- {name}: a restore in a fresh process takes {more:.0f} ms more than one of no"
                f" tool at all ({light.restore:.0f}), which imports the same, maps a file, makes"
                " what cannot be mapped, and answers"
            )
        others = (each for tool, each in rows.items() if tool not in ("holdfast", LIGHT))
        peers = [each for each in others if isinstance(each, Row)]
        if peers:
            # What does not bring back what was saved is no measure, unless none of them does.
            best = [each for each in peers if each.right] or peers
            quickest = min(each.step for each in best)
            smallest = min(each.megabytes for each in best)
            whose = "of those that are right" if best[0].right else "and none of them is right"
            lines.append(
                f"- {name}: {ours.step / quickest:.3f} of the best peer's time a step,"
                f" {ours.megabytes / max(smallest, 1e-6):.4f} of the best peer's bytes, {whose}"
            )
    return lines


def goal_of_kinds(ours: Back | str) -> str:
    """Nothing is lost because of a neighbour: all of them are in one session."""
    if isinstance(ours, str):
        return f"- **missed**: {kinds.NAME}, {ours}"
    share = ours.right / ours.of
    said = "reached" if share >= KINDS else "**missed**"
    return f"- {said}: {kinds.NAME}, {share:.0%} of the kinds come back, at least {KINDS:.0%}"


def overhead(name: str, ours: Cells, plain: Cells) -> str:
    """What running cells in a session costs beside plain `exec`."""
    more, ratio = ours.one - plain.one, ours.all / plain.all
    if name == "W1":
        good, words = more <= 1, f"a cell takes {more:.2f} ms more than by `exec`, at most 1"
    else:
        good = ratio <= 1.05
        words = f"all cells take {ratio:.2f} of what they take by `exec`, at most 1.05"
        words += f"; one that writes to half a megabyte of watched memory {more:.2f} ms more"
    return f"- {'reached' if good else '**missed**'}: {name}, {words}"


def _limit(what: str, value: float, ours: Row, light: Row) -> str:
    """How far a goal that was missed is from what nothing can be quicker than."""
    if what == "a step takes":
        return f"; one write of what changed, and its sync, alone take {light.step:.2f}"
    if what == "the user waits":
        return f"; copying the pages that changed alone takes {light.pause:.2f}"
    if value is ours.restore and ours.pool:
        return (
            f"; a process of no tool at all answers after {light.restore:.0f},"
            f" and from a warm pool this one after {ours.pool:.0f}"
        )
    return ""


def plot(found: dict[str, dict[str, Row | str]], odd: dict[str, Back | str], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(2, 3, figsize=(13, 8))
    *axes, last, legend = grid.flat
    names = list(found)
    tools = list(dict.fromkeys([*(tool for rows in found.values() for tool in rows), *odd]))
    width = 0.8 / max(1, len(tools))
    for number, tool in enumerate(tools):
        rows = [found[name].get(tool) for name in names]
        colour = f"C{number}"
        for axis, figure_of in zip(axes, ("step", "pause", "megabytes", "restore"), strict=True):
            heights = [
                (getattr(each, figure_of) or 0) if isinstance(each, Row) else 0 for each in rows
            ]
            places = [x + number * width for x in range(len(names))]
            axis.bar(places, heights, width, label=tool, color=colour)
        if isinstance(back := odd.get(tool), Back):
            last.barh(tool, 100 * back.right / back.of, color=colour)
    titles = ("a step, ms", "of that waiting, ms", "a step, MB", "restore, ms")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_xticks([x + 0.4 for x in range(len(names))], names)
        axis.set_ylabel(f"{title} (log scale, lower is better)")
        axis.set_yscale("log")
    legend.legend(*axes[0].get_legend_handles_labels(), loc="center", frameon=False)
    legend.set_axis_off()
    last.set_xlabel(f"{kinds.NAME}: % that comes back (higher is better)")
    last.axvline(100 * KINDS, color="grey", linestyle=":")
    last.invert_yaxis()
    figure.tight_layout()
    figure.savefig(path)


HEADING = """# Sessions beside their peers

`make bench` runs the same cells under Holdfast, Kishu, dill and cloudpickle, makes a checkpoint
after every step, and restores the last one in a fresh process. A checkpoint is counted when it is
on disk; "waiting" is how long no cell can run meanwhile. "Right" says that a check of all values
passed afterwards. A fresh process begins with the start of an interpreter; what takes less than two
seconds is restored in five of them, whatever the tool, and the median counts. A warm pool has a
process that has imported the libraries already. The physical limit is no tool: it is the time that
this machine needs to copy or to write and sync the bytes that changed; to start an interpreter that
imports the libraries, maps a file and answers over a pipe; and to make what no file has as it is:
texts, and arrays that are kept as deltas (read into new memory). Kishu runs in an environment of
its own, once as it is installed, and once (`kishu-tracker`) with the tracker that it calls
experimental, which is quicker and, by its own word, less exact. A virtual machine may have to wait
for memory that its host lends it; before each measurement it is made to hold as much as will be
needed, so that nobody pays for what the next one finds. What cells cost beside plain `exec` is the
median of five runs of each, by turns.

W5 is a set of awkward objects: generators, locks, files, views, cycles, closures and the like. The
peers are tried with each kind by itself, so that no other can spoil it, and with all imports there
beforehand; Holdfast has all of them in one session. What cannot be brought back by anybody, such as
a running frame, counts for nobody.

![time a step, waiting, bytes a step, time of a restore, awkward kinds that come back](session.svg)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--work", default=",".join([*GOALS, kinds.NAME]))
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    given = parser.parse_args()
    tools, chosen = given.tools.split(","), given.work.split(",")
    if "kishu" in tools and not KISHU.exists():
        raise SystemExit("Kishu is not installed: scripts/setup-python kishu")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as temporary:
        scratch = Path(temporary)
        light = limits.measure(scratch, {work.libraries for work in all_work().values()})
        rounds: dict[str, dict[str, list[Row | str]]] = {}
        for number in range(given.rounds):
            for name in chosen:
                if name == kinds.NAME:
                    continue
                for tool in tools if not all_work()[name].ours_only else ["holdfast"]:
                    print(f"round {number + 1}: {name}, {tool}", file=sys.stderr)
                    rounds.setdefault(name, {}).setdefault(tool, []).append(
                        row(tool, name, scratch)
                    )
        apart = [name for name in CELLS if name in chosen and {"holdfast", PLAIN} <= set(tools)]
        run_by = {name: cells(name, scratch) for name in apart}
        odd = {tool: awkward(tool, scratch) for tool in tools} if kinds.NAME in chosen else {}
    found = {
        name: {LIGHT: physical(light, all_work()[name])}
        | {tool: middle(rows) for tool, rows in by_tool.items()}
        for name, by_tool in rounds.items()
    }
    text = "\n".join([
        f"Medians of {given.rounds} rounds. {measure.machine()}. {light}",
        table(found), "",
        *(["**W5**: generators, locks, files, views, cycles, closures and the like", ""]
          + [f"- {tool}: {said}" for tool, said in odd.items()] + [""] if odd else []),
        *goals(found),
        *([goal_of_kinds(odd["holdfast"])] if "holdfast" in odd else []),
        *(overhead(name, by["holdfast"], by[PLAIN]) for name, by in run_by.items()),
    ])  # fmt: skip
    print(text)
    given.out.mkdir(parents=True, exist_ok=True)
    measure.publish(given.out / "session.md", text, HEADING + "\n")
    plot(found, odd, given.out / "session.svg")
    print(f"written to {given.out}/session.md and session.svg", file=sys.stderr)


if __name__ == "__main__":
    main()
