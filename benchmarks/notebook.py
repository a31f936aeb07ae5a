"""Notebooks with the extension and without: what it costs, and what a `kill -9` costs with it.

    python benchmarks/notebook.py [--rounds 3] [--notebooks cleaning,...] [--tools plain,...]
        [--pause 1.5] [--kills 3] [--out DIR]

Every notebook of benchmarks/notebooks runs in a real kernel, "Run all" (all cells are sent at once)
and with a pause between cells, by turns with each tool. `--out docs/benchmarks` writes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import measure, notebooks

PLAIN, OURS, DILL, KISHU = "plain", "holdfast", "dill", "kishu"
TOOLS = (PLAIN, OURS, DILL, KISHU)
KISHU_PYTHON = Path(__file__).resolve().parent.parent / ".cache/peers/kishu/bin/python"
LIMIT = 300.0  # seconds for a notebook
RATIO, CELL, LOST = 1.15, 5.0, 2.0  # what is to be reached: times, ms, seconds

# What each tool needs before the first cell.
BEGIN = {
    OURS: "%load_ext holdfast",
    DILL: (
        "def _after(result):\n"
        "    import dill, __main__\n"
        "    try: dill.dump_session('session.dill')\n"
        "    except Exception as error: _failed.append(type(error).__name__)\n"
        "_failed = []\n"
        "get_ipython().events.register('post_run_cell', _after)"
    ),
    KISHU: (
        "from pathlib import Path\n"
        "from kishu.storage.config import Config\n"
        "Config.set('JUPYTERINT', 'test_mode', True)\n"
        "from kishu.jupyterint import KishuForJupyter\n"
        "from kishu.notebook_id import NotebookId\n"
        "_place = Path('bench.ipynb').resolve()\n"
        '_place.write_text(\'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}\')\n'
        "_kishu = KishuForJupyter(NotebookId('bench', _place, 'bench'), get_ipython())\n"
        "get_ipython().events.register('pre_run_cell', _kishu.pre_run_cell)\n"
        "get_ipython().events.register('post_run_cell', _kishu.post_run_cell)"
    ),
}
# What the machine itself needs, asked in a kernel that has run the notebook: milliseconds of a
# fork, and of hashing what a cell names, as one pickle for each.
MACHINE = """\
def _machine(cells):
    import ast, os, pickle, time
    from blake3 import blake3
    took = []
    for _ in range(7):
        start = time.perf_counter()
        child = os.fork()
        if child == 0:
            os._exit(0)
        took.append(time.perf_counter() - start)
        os.waitpid(child, 0)
    hashed = []
    for cell in cells:
        nodes = ast.walk(ast.parse(cell))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        data = b""
        for name in names & globals().keys():
            try:
                data += pickle.dumps(globals()[name], 5)
            except Exception:
                pass
        start = time.perf_counter()
        blake3(data).digest()
        hashed.append(time.perf_counter() - start)
    return [sorted(took)[3] * 1000, sorted(hashed)[len(hashed) // 2] * 1000]
"""


class Kernel:
    """A kernel in a folder, and a client that sends it cells."""

    def __init__(self, folder: Path, tool: str) -> None:
        from jupyter_client.kernelspec import KernelSpec
        from jupyter_client.manager import KernelManager

        python = str(KISHU_PYTHON) if tool == KISHU else sys.executable
        command = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self._manager = KernelManager(kernel_name="python3")
        self._manager._kernel_spec = KernelSpec(argv=command, display_name="", language="python")
        own = {"HOLDFAST_HOME": str(folder), "HOLDFAST_SESSION": "bench", "MPLBACKEND": "agg"}
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "JPY_"))}
        home = {"HOME": str(folder)} if tool == KISHU else {}
        self._manager.start_kernel(env={**clean, **own, **home}, cwd=str(folder))
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)

    def send(self, code: str) -> str:
        return str(self._client.execute(code, stop_on_error=False))

    def answered(self, sent: str, until: float) -> bool | None:
        """Whether a cell that was sent went well; None when it did not end in time."""
        from queue import Empty

        while (left := until - time.monotonic()) > 0:
            try:
                reply: dict[str, Any] = self._client.get_shell_msg(timeout=left)
            except Empty:
                return None
            if reply["parent_header"].get("msg_id") == sent:
                return reply["content"]["status"] == "ok"
        return None

    def run(self, code: str) -> bool:
        return self.answered(self.send(code), time.monotonic() + LIMIT) is True

    def ask(self, expression: str) -> Any:
        """The value of an expression, as JSON has it."""
        asked = {"asked": f"__import__('json').dumps({expression})"}
        sent = self._client.execute("", silent=True, user_expressions=asked)
        while True:
            reply: dict[str, Any] = self._client.get_shell_msg(timeout=LIMIT)
            if reply["parent_header"].get("msg_id") == sent:
                found = reply["content"]["user_expressions"]["asked"]
                if found["status"] != "ok":
                    raise RuntimeError(f"{expression[:60]}: {found['evalue']}")
                text = found["data"]["text/plain"]
                return json.loads(text[1:-1].encode().decode("unicode_escape"))

    def kill(self) -> None:
        os.kill(self._manager.provisioner.process.pid, 9)  # type: ignore[union-attr]

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@dataclass
class Run:
    """One notebook with one tool."""

    seconds: float  # of "Run all"
    cells: list[float]  # of each cell, with a pause after it
    failed: str = ""


def begin(folder: Path, tool: str) -> Kernel:
    kernel = Kernel(folder, tool)
    if tool in BEGIN and not kernel.run(BEGIN[tool]):
        kernel.close()
        raise RuntimeError(f"{tool} does not begin")
    return kernel


def run_all(kernel: Kernel, cells: tuple[str, ...]) -> float:
    """Seconds until the last of the cells, which are sent at once, has been answered."""
    start = time.perf_counter()
    sent = [kernel.send(cell) for cell in cells]
    for each in sent:
        if kernel.answered(each, time.monotonic() + LIMIT) is not True:
            raise RuntimeError("a cell failed")
    return time.perf_counter() - start


def with_pauses(kernel: Kernel, cells: tuple[str, ...], pause: float) -> list[float]:
    took = []
    for cell in cells:
        start = time.perf_counter()
        if not kernel.run(cell):
            raise RuntimeError("a cell failed")
        took.append(time.perf_counter() - start)
        time.sleep(pause)  # as somebody does who reads what came of it
    return took


def one(name: str, tool: str, pause: float, scratch: Path) -> Run:
    """A notebook in two kernels, one for each way."""
    cells = notebooks.read(name).cells
    run = Run(float("nan"), [])
    for way in ("all", "pauses"):
        with tempfile.TemporaryDirectory(dir=scratch) as place:
            try:
                kernel = begin(Path(place), tool)
            except RuntimeError as error:
                return Run(run.seconds, run.cells, str(error))
            try:
                if way == "all":
                    run.seconds = run_all(kernel, cells)
                else:
                    run.cells = with_pauses(kernel, cells, pause)
                if tool == DILL and (failed := kernel.ask("_failed")):
                    run.failed = f"{len(failed)} of {len(cells)} failed"
            except RuntimeError as error:
                run.failed = str(error)
            finally:
                kernel.close()
    return run


def machine(name: str, scratch: Path) -> tuple[float, float]:
    """Milliseconds of a fork of the kernel, and of hashing what a cell names."""
    cells = notebooks.read(name).cells
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        kernel = Kernel(Path(place), PLAIN)
        try:
            run_all(kernel, cells)
            kernel.run(MACHINE)
            fork, hashing = kernel.ask(f"_machine({list(cells)!r})")
        finally:
            kernel.close()
    return fork, hashing


def lost(name: str, moment: float, scratch: Path) -> float:
    """Seconds of cells that had ended, and are to be run again, when the kernel is killed after so
    many seconds of "Run all"."""
    from holdfast.store import open_store

    cells = notebooks.read(name).cells
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        kernel = begin(Path(place), OURS)
        ended = [time.monotonic()]
        until = ended[0] + moment
        try:
            for each in [kernel.send(cell) for cell in cells]:
                if kernel.answered(each, until) is None:
                    break
                ended.append(time.monotonic())
            time.sleep(max(0.0, until - time.monotonic()))
            kernel.kill()
        finally:
            kernel.close()
        head = open_store(str(Path(place) / "store")).head("session/bench")
        found = re.search(r"(\d+)$", head.reason) if head is not None else None
        saved = int(found[1]) - 1 if found else 0  # the first cell loads the extension
        return ended[-1] - ended[min(saved, len(ended) - 1)]


@dataclass
class Found:
    """All that was measured of a notebook."""

    runs: dict[str, list[Run]] = field(default_factory=dict)
    fork: float = 0.0
    hashing: float = 0.0
    lost: list[float] = field(default_factory=list)

    def seconds(self, tool: str) -> float:
        return statistics.median(run.seconds for run in self.runs[tool])

    def ratio(self, tool: str) -> float:
        return self.seconds(tool) / self.seconds(PLAIN)

    def cell(self, tool: str) -> float:
        """Milliseconds that a cell takes more after a pause, in the median."""
        return statistics.median(self.cells(tool))

    def cells(self, tool: str) -> list[float]:
        mine, plain = self._each(tool), self._each(PLAIN)
        return [(a - b) * 1000 for a, b in zip(mine, plain, strict=False)] or [float("nan")]

    def _each(self, tool: str) -> list[float]:
        runs = [run.cells for run in self.runs[tool] if run.cells]
        return [statistics.median(each) for each in zip(*runs, strict=False)]

    def failed(self, tool: str) -> str:
        return next((run.failed for run in self.runs[tool] if run.failed), "")


def table(found: Mapping[str, Found], tools: list[str]) -> list[str]:
    others = [tool for tool in tools if tool != PLAIN]
    head = ["notebook", "plain, s"]
    head += [f"{tool}, Run all" for tool in others] + [f"{tool}, ms a cell" for tool in others]
    head += ["most, ms", "again, s", "fork, ms", "hash, ms"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, each in found.items():
        row = [name, f"{each.seconds(PLAIN):.2f}"]
        row += [f"{each.ratio(tool):.2f}" + _note(each, tool) for tool in others]
        row += [f"{each.cell(tool):.1f}" for tool in others]
        row += [f"{max(each.cells(OURS)):.0f}", f"{max(each.lost, default=0.0):.2f}"]
        lines.append("| " + " | ".join([*row, f"{each.fork:.1f}", f"{each.hashing:.2f}"]) + " |")
    return lines


def _note(found: Found, tool: str) -> str:
    return f" ({found.failed(tool)})" if found.failed(tool) else ""


def goals(found: Mapping[str, Found]) -> list[str]:
    lines = []
    for name, each in found.items():
        for value, most, what in (
            (each.ratio(OURS), RATIO, f'"Run all" takes {{:.2f}} times, at most {RATIO}'),
            (each.cell(OURS), CELL, f"a cell after a pause {{:.1f}} ms more, at most {CELL:g}"),
            (max(each.lost, default=0.0), LOST, f"{{:.2f}} s are done again, at most {LOST:g}"),
        ):
            said = "reached" if value <= most else "**missed**"
            lines.append(f"- {said}: {name}, {what.format(value)}")
    return lines


def plot(found: Mapping[str, Found], tools: list[str], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.5))
    names = list(found)
    others = [tool for tool in tools if tool != PLAIN]
    width = 0.8 / max(1, len(others))
    for number, tool in enumerate(others):
        places = [at + number * width for at in range(len(names))]
        axes[0].bar(places, [found[n].ratio(tool) for n in names], width, label=tool)
        cells = [max(found[n].cell(tool), 0.1) for n in names]
        axes[1].bar(places, cells, width, label=tool)
    axes[0].axhline(RATIO, color="grey", linestyle=":")
    axes[1].axhline(CELL, color="grey", linestyle=":")
    axes[1].set_yscale("log")
    axes[2].bar(names, [max(found[n].lost, default=0.0) for n in names], color="C0")
    axes[2].axhline(LOST, color="grey", linestyle=":")
    for axis, title in zip(
        axes, ("Run all, times", "a cell after a pause, ms more", "done again, s"), strict=True
    ):
        axis.set_ylabel(f"{title} (lower is better)")
        axis.set_xticks(range(len(names)), names, rotation=60)
    axes[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)


HEADING = """# Notebooks with the extension

`make bench` runs ten notebooks of 13 to 15 cells in real kernels: without anything, with `%load_ext
holdfast`, with `dill.dump_session` after each cell, and with Kishu where its environment has what
the notebook imports. "Run all" sends all cells at once; then the same cells with 1.5 s between
them, where what counts is how much longer a cell takes until it is answered, in the median over the
cells; "most" is the worst of them. "Again" is the loss that the price buys: kernels are killed with
`kill -9` at moments chosen by chance during "Run all" and shortly after it, and counted are the
seconds of cells that had ended and are in no checkpoint; the worst kill counts. (The cell that was
running is lost as well, as with every tool.) `dill` loses nothing that had ended, where it does not
fail.

What this machine needs at least stands beside it: a fork of the kernel that has run the notebook,
until it goes on, and hashing what a cell names (its pickle), in the median over the cells.

![times of "Run all", milliseconds a cell, seconds done again](notebook.svg)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--notebooks", default=",".join(notebooks.names()))
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--pause", type=float, default=1.5)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=28)
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    given = parser.parse_args()
    tools, chosen = given.tools.split(","), given.notebooks.split(",")
    if KISHU in tools and not KISHU_PYTHON.exists():
        raise SystemExit("Kishu is not installed: scripts/setup-python kishu")
    by_chance = random.Random(given.seed)
    found: dict[str, Found] = {name: Found() for name in chosen}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as temporary:
        scratch = Path(temporary)
        for number in range(given.rounds):
            for name, each in found.items():
                for tool in tools:
                    print(f"round {number + 1}: {name}, {tool}", file=sys.stderr)
                    run = one(name, tool, given.pause, scratch)
                    each.runs.setdefault(tool, []).append(run)
        for name, each in found.items():
            print(f"kills: {name}", file=sys.stderr)
            each.fork, each.hashing = machine(name, scratch)
            whole = each.seconds(OURS)
            each.lost = [
                lost(name, by_chance.uniform(0.1, whole + 1.0), scratch) for _ in range(given.kills)
            ]
    text = "\n".join([
        f"Medians of {given.rounds} rounds, {given.kills} kills a notebook. {measure.machine()},",
        f"load {os.getloadavg()[0]:.1f}.", "",
        *table(found, tools), "", *goals(found),
    ])  # fmt: skip
    print(text)
    given.out.mkdir(parents=True, exist_ok=True)
    measure.publish(given.out / "notebook.md", text, HEADING + "\n")
    plot(found, tools, given.out / "notebook.svg")
    print(f"written to {given.out}/notebook.md and notebook.svg", file=sys.stderr)


if __name__ == "__main__":
    main()
