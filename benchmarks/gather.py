"""Gathers what the benchmarks wrote into one page: docs/benchmarks.md.

`make bench` runs it last. Each benchmark leaves its page and its plot in one folder; this one
counts the goals that were reached, takes over tables and plots, and links to the rest. A benchmark
that has left no page is named, on the page and on the terminal.
"""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass
from pathlib import Path

# In the order of the levels; the page of each is called like its script.
TITLES = {
    "store": "The store, beside restic, borg and tar",
    "state": "Application state, beside LangGraph's SqliteSaver and JSON files",
    "session": "Sessions, beside Kishu, dill and cloudpickle",
    "notebook": "Notebooks with the extension, beside dill and Kishu",
    "sandbox": "Sandboxes, beside the engine alone",
    "container": "Containers, beside plain runc and CRIU",
    "load": "Sandboxes under load, and servers that are killed meanwhile",
}
# What `make bench` runs only when it is asked to, and how.
ASKED = {"load": "make bench LOAD=1, which takes 24 minutes more"}
_GOAL = re.compile(r"^- (?:(\w+): )?(reached|\*\*missed\*\*): (.*)$", re.MULTILINE)
_HOW = re.compile(r"^(?:.+\n)*?.*\d+ cores, (?:.+\n?)*", re.MULTILINE)  # a whole paragraph
_TABLE = re.compile(r"^\|.*\n\|[-|: ]+\n(?:\|.*\n?)+", re.MULTILINE)

INTRODUCTION = """\
# Benchmarks

`make bench ARGS="--out docs/benchmarks"` measures everything on this machine, with the peers in
the same run, and writes these pages. Times on a shared machine move by half; what counts are the
ratios within a run. A goal that was missed is listed as missed. The page of sandboxes under load is
an older run's unless `LOAD=1` asked for a new one, which takes 24 minutes more.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """What one benchmark wrote."""

    name: str
    reached: tuple[str, ...]
    missed: tuple[str, ...]
    how: str
    tables: tuple[str, ...]
    plot: bool


def read(folder: Path, name: str) -> Page | None:
    """A benchmark's page, if it was run."""
    path = folder / f"{name}.md"
    if not path.exists():
        return None
    text = path.read_text()
    goals = [
        (found, f"{where}: {what}" if where else what) for where, found, what in _GOAL.findall(text)
    ]
    how = _HOW.search(text)
    return Page(
        name,
        tuple(what for found, what in goals if found == "reached"),
        tuple(what for found, what in goals if found != "reached"),
        " ".join(how[0].split()) if how else "",
        tuple(each.rstrip() for each in _TABLE.findall(text)),
        (folder / f"{name}.svg").exists(),
    )


def page(pages: list[Page], folder: str) -> str:
    """The page of all of them; `folder` is where theirs are, seen from it."""
    lines = [INTRODUCTION, "| | goals reached | missed |", "|---|---|---|"]
    for each in pages:
        title = f"[{TITLES[each.name]}]({folder}/{each.name}.md)"
        lines.append(f"| {title} | {len(each.reached)} | {len(each.missed)} |")
    there = {each.name for each in pages}
    lines += [f"| {what} | not measured here | |" for n, what in TITLES.items() if n not in there]
    for each in pages:
        lines += ["", f"## [{TITLES[each.name]}]({folder}/{each.name}.md)", ""]
        lines += [each.how, ""] if each.how else []
        lines += [f"![{TITLES[each.name]}]({folder}/{each.name}.svg)", ""] if each.plot else []
        for table in each.tables:
            lines += [table, ""]
        lines += [f"- **missed**: {what}" for what in each.missed]
        lines += [f"- reached: {what}" for what in each.reached]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    given, _ = parser.parse_known_args()  # `make bench` gives all benchmarks the same options
    found = [each for name in TITLES if (each := read(given.out, name)) is not None]
    target = given.out.parent / "benchmarks.md"
    target.write_text(page(found, os.path.relpath(given.out, target.parent)))
    print(f"{len(found)} of {len(TITLES)} benchmarks gathered in {target}")
    for name in TITLES.keys() - {each.name for each in found}:
        writes = f"benchmarks/{name}.py --out {given.out} writes"
        asked = f" ({ASKED[name]})" if name in ASKED else ""
        print(f"missing: {given.out / name}.md, which {writes}{asked}")


if __name__ == "__main__":
    main()
