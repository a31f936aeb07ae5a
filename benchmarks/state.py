"""Application state against LangGraph's SqliteSaver and plain JSON files: a table and a plot.

    python benchmarks/state.py [--rounds 3] [--out DIR]     (the page: --out docs/benchmarks)

Every put is durable when it returns. Each round runs every tool on the same steps, each in a
process of its own; the table shows medians, and the goals are judged as ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import chats, measure
from benchmarks.chats import State

WORKS: dict[str, Callable[[], Iterator[State]]] = {
    "chat: 200 steps of +2 KB": chats.chat,
    "5 MB, 1% changed, 40 steps": chats.large,
}
GETS = 30
SQLITE = "LangGraph SqliteSaver"
OURS = ("Holdfast StateManager", "Holdfast saver")
FILES = "Holdfast files"
MOST_MB = (0.5, 4.1)
JSON = "JSON file, atomic + fsync"
PAGE = """# Application state beside its peers

`make bench` lets every tool keep the same two states: a chat that grows by a message of 2 KB at
each of 200 steps, and a state of 5 MB of which 1% changes at each of 40. Every put is durable when
it returns: SqliteSaver writes its journal and syncs it once a put (`synchronous = FULL`), a JSON
file needs two syncs and a rename, Holdfast writes an entry of its log and syncs that once. A get is
the newest state read again by the process that wrote it. A first get is by another process, which
has just opened what the first one wrote (how long that takes stands below); Holdfast's finds a copy
that the writer left in `HOLDFAST_HOME` when it closed the store, which is not in the MB. Puts a
second are all puts, the slow ones too, by the time of them all. Each tool runs in a process of its
own, in turn. Ratios within a run are what counts; the machine's noise is larger than many
differences.

![time of a put and a get, and bytes on disk](state.svg)

"""


@dataclass(frozen=True)
class Cost:
    """What one tool took for one work, in ms: the middle put and get, by the wall and the CPU."""

    put: float
    put_cpu: float
    get: float
    get_cpu: float
    puts_a_second: float
    mb: float
    opening: float = 0.0  # by another process, with everything loaded
    cold: float = 0.0  # its first get


def syncs(place: Path) -> dict[str, float]:
    """What one sync of 3 KB takes here, in ms, with nothing around it: behind the end of a file,
    and inside of one, as of Holdfast's log and of SQLite's journal from its second round on."""
    taken: dict[str, list[float]] = {"appended": [], "overwritten": []}
    data = os.urandom(3000)
    for kind, times in taken.items():
        path = place / kind
        with path.open("wb", buffering=0) as file:
            if kind == "overwritten":
                file.write(bytes(1_000_000))
                os.fsync(file.fileno())
            for number in range(200):
                begun = time.perf_counter()
                os.pwrite(file.fileno(), data, number * len(data))
                os.fdatasync(file.fileno())
                times.append(time.perf_counter() - begun)
        path.unlink()
    return {kind: statistics.median(times) * 1e3 for kind, times in taken.items()}


class Tool:
    """Something that keeps states: opened on a directory, put to, and got from."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def put(self, state: State) -> None:
        raise NotImplementedError  # each tool has its own

    def get(self) -> State:
        raise NotImplementedError  # each tool has its own

    def close(self) -> None:
        """Let go of what is open."""


class JsonFiles(Tool):
    """One file a step: written beside, synced, renamed, the directory synced."""

    count = 0

    def put(self, state: State) -> None:
        data = json.dumps({"session_id": "s", "stage": "x", "state_info": state}).encode()
        draft = self.place / "draft"
        with draft.open("wb", buffering=0) as stream:
            stream.write(data)
            os.fsync(stream.fileno())
        draft.rename(self.place / f"{self.count:06d}.json")
        self.count += 1
        folder = os.open(self.place, os.O_DIRECTORY)
        os.fsync(folder)
        os.close(folder)

    def get(self) -> State:
        newest = max(self.place.glob("*.json"))
        return json.loads(newest.read_bytes())["state_info"]


class HoldfastFiles(Tool):
    def __init__(self, place: Path) -> None:
        from holdfast.state import StateManager

        super().__init__(place)
        self._given = {"directory": place, "checkpoint_limit": 1000}
        self._manager = StateManager("s", **self._given)  # type: ignore[arg-type]

    def put(self, state: State) -> None:
        self._manager.state_data = state
        self._manager.checkpoint("step")

    def get(self) -> State:
        return type(self._manager).load("s", **self._given).state_data


class HoldfastState(Tool):
    def __init__(self, place: Path) -> None:
        from holdfast.state import StateManager
        from holdfast.store import open_store

        super().__init__(place)
        self._store = open_store(place / "store")
        self._manager = StateManager("s", store=self._store, checkpoint_limit=1000)

    def put(self, state: State) -> None:
        self._manager.state_data = state
        self._manager.checkpoint("step")

    def get(self) -> State:
        return type(self._manager).load("s", store=self._store).state_data

    def close(self) -> None:
        self._store.close()


class Saver(Tool):
    """Through LangGraph's interface, as a graph would use it."""

    saver: Any

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._thread: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        self._config = self._thread
        self._versions: dict[str, Any] = {}
        self._step = 0

    def put(self, state: State) -> None:
        from langgraph.checkpoint.base.id import uuid6

        for channel in state:
            now = self._versions.get(channel)
            self._versions[channel] = self.saver.get_next_version(now, None)
        checkpoint = {
            "v": 2,
            "id": str(uuid6(clock_seq=self._step)),
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": state,
            "channel_versions": dict(self._versions),
            "versions_seen": {},
            "updated_channels": list(state),
        }
        metadata = {"source": "loop", "step": self._step, "parents": {}}
        self._config = self.saver.put(self._config, checkpoint, metadata, dict(self._versions))
        self._step += 1

    def get(self) -> State:
        return self.saver.get_tuple(self._thread).checkpoint["channel_values"]


class Sqlite(Saver):
    def __init__(self, place: Path) -> None:
        from langgraph.checkpoint.sqlite import SqliteSaver

        super().__init__(place)
        self._connection = sqlite3.connect(place / "saver.db", check_same_thread=False)
        self.saver = SqliteSaver(self._connection)
        self.saver.setup()

    def close(self) -> None:
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()


class HoldfastSaver(Saver):
    def __init__(self, place: Path) -> None:
        from holdfast.integrations.langgraph import HoldfastSaver as OnStore

        super().__init__(place)
        self.saver = OnStore(str(place / "store"))

    def close(self) -> None:
        self.saver.store.close()


TOOLS: dict[str, type[Tool]] = {
    SQLITE: Sqlite,
    JSON: JsonFiles,
    FILES: HoldfastFiles,
    OURS[0]: HoldfastState,
    OURS[1]: HoldfastSaver,
}


def run(make: type[Tool], steps: Iterator[State], place: Path) -> Cost:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    tool = make(place)
    tool.put({})
    empty = measure.size_of(place)  # what is there whatever one puts
    puts = []
    last: State = {}
    for state in steps:
        puts.append(_timed(lambda state=state: tool.put(state)))
        last = state
    gets = [_timed(tool.get) for _ in range(GETS)]
    if tool.get() != last:
        raise SystemExit(f"{make.__name__} gave back something else than was put")
    tool.close()
    size = measure.size_of(place)
    a_second = len(puts) / sum(wall for wall, _ in puts)
    return Cost(*_middles(puts), *_middles(gets), a_second, (size - empty) / 1e6)


def first_get(make: type[Tool], steps: Iterator[State], place: Path) -> dict[str, float]:
    """Milliseconds to open what another process wrote, and to read it."""
    beside = place.with_name("beside")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    other = make(beside)
    other.put({})
    other.get()
    other.close()
    opened: list[Tool] = []
    found: list[State] = []
    opening, _ = _timed(lambda: opened.append(make(place)))
    cold, _ = _timed(lambda: found.append(opened[0].get()))
    *_, last = steps
    if found != [last]:
        raise SystemExit(f"{make.__name__} gave back something else after it was opened again")
    return {"opening": opening * 1e3, "cold": cold * 1e3}


def measured(work: str, name: str, place: Path) -> Cost:
    """The same in a process of its own, whose memory no other tool has shaped."""
    cost = Cost(**_asked("--one", work, name, place))
    return replace(cost, **_asked("--first", work, name, place))


def _asked(what: str, work: str, name: str, place: Path) -> Any:
    command = [sys.executable, __file__, what, work, name, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def _timed(act: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - wall, time.process_time() - cpu


def _middles(times: list[tuple[float, float]]) -> tuple[float, float]:
    return tuple(statistics.median(each) * 1e3 for each in zip(*times, strict=True))  # type: ignore[return-value]


def middle(costs: list[Cost]) -> Cost:
    columns = zip(*(vars(cost).values() for cost in costs), strict=True)
    return Cost(*(statistics.median(column) for column in columns))


Rows = dict[str, dict[str, Cost]]  # by work, then by tool


def table(rows: Rows) -> str:
    lines = []
    for work, costs in rows.items():
        lines += [
            f"| {work} | put ms (CPU) | puts a second | get ms (CPU) | first get ms | MB |",
            "|---" * 6 + "|",
        ]
        lines += [
            f"| {name} | {c.put:.2f} ({c.put_cpu:.2f}) | {c.puts_a_second:.0f} |"
            f" {c.get:.2f} ({c.get_cpu:.2f}) | {c.cold:.1f} | {c.mb:.2f} |"
            for name, c in costs.items()
        ]
        lines.append("")
    return "\n".join(lines)


def goals(rows: Rows) -> list[tuple[str, bool]]:
    found = []
    for (work, costs), most in zip(rows.items(), MOST_MB, strict=True):
        peer = costs[SQLITE]
        for name in OURS:
            ours = costs[name]
            short = f"{work.split(',')[0].split(':')[0]}, {name}"
            put, get = ours.put / peer.put, ours.get / peer.get
            more = ours.puts_a_second / peer.puts_a_second
            found += [
                (f"{short}: a put takes {put:.2f} of SqliteSaver's time", put < 1),
                (f"{short}: {more:.2f} times as many puts a second", more > 1),
                (f"{short}: a get takes {get:.2f} of SqliteSaver's time", get < 1),
                (f"{short}: {ours.mb:.2f} MB, at most {most}", ours.mb <= most),
            ]
    return found


def notes(rows: Rows, sync: dict[str, float]) -> list[str]:
    """What has no goal and is good to know."""
    bare = ", ".join(f"{ms:.2f} ms {kind}" for kind, ms in sync.items())
    found = [
        f"- 3 KB written and synced, with nothing around it: {bare}. No durable put takes less."
    ]
    for work, costs in rows.items():
        for name in OURS:
            rest = max(0.0, costs[name].put - sync["overwritten"])
            short = f"{work.split(',')[0].split(':')[0]}, {name}"
            ours, peer = costs[name], costs[SQLITE]
            found.append(
                f"- {short}: without its sync a put would take {rest:.2f} ms; to open what is there"
                f" takes {ours.opening:.1f} ms (SqliteSaver {peer.opening:.1f}), and the first get"
                f" then {ours.cold / peer.cold:.2f} of SqliteSaver's time"
            )
    return found


def plot(rows: Rows, path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(12, 6))
    for line, (work, costs) in zip(axes, rows.items(), strict=True):
        for axis, (title, field) in zip(
            line, (("put, ms", "put"), ("get, ms", "get"), ("MB on disk", "mb")), strict=True
        ):
            axis.barh(list(costs), [getattr(cost, field) for cost in costs.values()])
            axis.invert_yaxis()
            axis.set_title(f"{work.split(',')[0]}: {title}", fontsize=9)
            axis.tick_params(labelsize=8)
            axis.set_xscale("log")
            if axis is not line[0]:
                axis.set_yticklabels([])
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    for what in ("--one", "--first"):
        parser.add_argument(what, nargs=3, metavar=("WORK", "TOOL", "PLACE"), help="as JSON")
    given = parser.parse_args()
    if given.one:
        work, name, place = given.one
        print(json.dumps(vars(run(TOOLS[name], WORKS[work](), Path(place)))))
        return
    if given.first:
        work, name, place = given.first
        print(json.dumps(first_get(TOOLS[name], WORKS[work](), Path(place))))
        return
    found: dict[str, dict[str, list[Cost]]] = {work: {name: [] for name in TOOLS} for work in WORKS}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as temporary:
        os.environ["HOLDFAST_HOME"] = str(Path(temporary) / "home")
        sync = syncs(Path(temporary))
        for number in range(given.rounds):
            print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
            for work in WORKS:
                for name in TOOLS:
                    place = Path(temporary) / "place"
                    found[work][name].append(measured(work, name, place))
    rows = {
        work: {name: middle(costs) for name, costs in tools.items()}
        for work, tools in found.items()
    }
    peers = f"SqliteSaver {version('langgraph-checkpoint-sqlite')}, SQLite {sqlite3.sqlite_version}"
    text = "\n".join(
        [
            f"Medians of {given.rounds} rounds. {measure.machine()}. {peers}.",
            "",
            table(rows),
            *(f"- {'reached' if ok else '**missed**'}: {what}" for what, ok in goals(rows)),
            *notes(rows, sync),
        ]
    )
    print(text)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "state.md").write_text(PAGE + text + "\n")
    plot(rows, given.out / "state.svg")
    print(f"written to {given.out}/state.md and state.svg", file=sys.stderr)


if __name__ == "__main__":
    main()
