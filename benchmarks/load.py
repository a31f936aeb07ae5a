"""Many sandboxes held at once, with executions going on, and servers that are killed meanwhile.

    python benchmarks/load.py [--process 100] [--gvisor 30] [--runc 0] [--minutes 10]
                              [--kills 10] [--pace 5] [--out DIR]

Every sandbox counts in a file, once every `pace` seconds, and is checkpointed now and then; what it
says must be the next number. In the last part the server is killed with -9 again and again: whoever
comes back finds at least what was CHECKPOINTED. The plot has the latencies over the time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import measure
from benchmarks.engine_alone import VERSIONS
from holdfast import HoldfastError, NotFound, Sandbox

COUNT = "n=$(($(cat /root/n 2>/dev/null || echo 0) + 1)); echo $n > /root/n; echo $n"
OPTIONS = {"enable_checkpoint": True, "enable_sandbox_handoff": True, "idle_timeout": 7200}
TOKEN = "a-token-for-the-load-test"
AT_ONCE = 8  # creates at a time
CHECKPOINT_EVERY = 12  # counts
BACK_SECONDS = 120.0  # until a killed server must have been replaced
KILLED_AT_MOST = 20  # sandboxes in the part with kills


class Server:
    """One of ours, on a port that stays the same when it is killed and started again."""

    def __init__(self, engine: str, home: Path, most: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._argv = [
            *(str(Path(sys.executable).with_name("holdfast")), "serve", "--engine", engine),
            *("--port", str(self._port), "--max-sandboxes", str(most + 8), "--pool", "1"),
            *("--sandbox-memory", "512MiB", "--sandbox-disk", "64MiB", "--max-waiting", str(most)),
            *("--max-wait", "600"),
        ]
        self._environ = {**os.environ, "HOLDFAST_HOME": str(home), "HOLDFAST_TOKEN": TOKEN}
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._argv, env=self._environ, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        for _ in range(3):
            if not self._process.stdout.readline():
                raise SystemExit("the server did not start")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(120)


@dataclass
class Record:
    """What happened, and when: seconds since the beginning and milliseconds by kind."""

    began: float = field(default_factory=time.monotonic)
    seen: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    back: int = 0  # sandboxes that came back after a kill

    def note(self, kind: str, since: float) -> None:
        now = time.monotonic()
        self.seen.setdefault(kind, []).append((now - self.began, (now - since) * 1000))

    def times(self, kind: str) -> list[float]:
        return [each for _, each in self.seen.get(kind, [])]


class Holder:
    """One sandbox and whoever uses it."""

    def __init__(self, server: Server, record: Record, pace: float, kills: int) -> None:
        self._server = server
        self._record = record
        self._pace = pace
        self._kills = kills
        self._sandbox: Sandbox | None = None
        self._name = ("", "")
        self._count = 0
        self._kept = 0  # the last number that was CHECKPOINTED

    async def begin(self, turns: asyncio.Semaphore) -> None:
        async with turns:
            since = time.monotonic()
            self._sandbox = await Sandbox.create(
                self._server.url, token=TOKEN, enable_auto_reconnect=False, **OPTIONS
            )
            self._record.note("create", since)
        self._name = (self._sandbox.sandbox_id, self._sandbox.sandbox_token)
        await self._checkpoint()

    async def hold(self, over: asyncio.Event) -> None:
        """Count until it is over; a server that goes away is waited for. Where nobody kills it,
        every error is one."""
        await asyncio.sleep(random.uniform(0, self._pace))
        while not over.is_set():
            try:
                await self._step()
                await asyncio.sleep(self._pace * random.uniform(0.5, 1.5))
            except HoldfastError as error:
                if not self._kills:
                    self._record.wrong.append(f"{self._name[0]}: {error!r:.200}")
                await self._come_back()
        assert self._sandbox is not None
        await self._sandbox.kill()

    async def _step(self) -> None:
        said = await self._said(COUNT)
        self._count += 1
        if said != str(self._count):
            self._record.wrong.append(f"{self._name[0]}: {said!r} instead of {self._count}")
            self._count = int(said or 0)
        if self._count % CHECKPOINT_EVERY == 0:
            await self._checkpoint()

    async def _said(self, code: str) -> str:
        assert self._sandbox is not None
        since = time.monotonic()
        process = await self._sandbox.exec("bash", code)
        said = await process.stdout.read_all()
        ended = await process.wait()
        if ended.code != 0:
            raise HoldfastError(f"it ended with {ended}")
        self._record.note("exec", since)
        return said.strip()

    async def _checkpoint(self) -> None:
        assert self._sandbox is not None
        since = time.monotonic()
        await self._sandbox.checkpoint("load", leave_running=True)
        self._record.note("checkpoint", since)
        self._kept = self._count

    async def _come_back(self) -> None:
        since = time.monotonic()
        while True:
            try:
                self._sandbox = await Sandbox.attach(
                    self._server.url, *self._name, token=TOKEN, enable_auto_reconnect=False
                )
                found = int(await self._said("cat /root/n 2>/dev/null || echo 0"))
                break
            except NotFound:
                self._record.wrong.append(f"{self._name[0]} is gone")
                raise
            except HoldfastError:
                if time.monotonic() > since + BACK_SECONDS:
                    raise
                await asyncio.sleep(random.uniform(0.2, 1.0))
        self._record.note("come back", since)
        self._record.back += 1
        if found < self._kept:
            self._record.wrong.append(f"{self._name[0]}: {found} after {self._kept} was kept")
        self._count = found


async def held(
    engine: str, sandboxes: int, seconds: float, *, pace: float = 5.0, kills: int = 0
) -> Record:
    """Hold so many for so long, and until the server was killed so many times."""
    with tempfile.TemporaryDirectory(prefix="holdfast-load-") as folder:
        server = Server(engine, Path(folder), sandboxes)
        record = Record()
        try:
            holders = [Holder(server, record, pace, kills) for _ in range(sandboxes)]
            turns = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(each.begin(turns) for each in holders))
            over = asyncio.Event()

            async def end() -> None:
                try:
                    killing = _kill(server, record, sandboxes, kills)
                    await asyncio.gather(asyncio.sleep(seconds), killing)
                finally:
                    over.set()

            results = await asyncio.gather(
                *(each.hold(over) for each in holders), end(), return_exceptions=True
            )
            record.wrong += [f"{each!r:.300}" for each in results if each is not None]
        finally:
            server.stop()
        return record


async def _kill(server: Server, record: Record, sandboxes: int, kills: int) -> None:
    """Kill the server so many times, each time when everybody has come back."""
    for number in range(kills):
        await asyncio.sleep(random.uniform(3, 6))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        deadline = time.monotonic() + BACK_SECONDS
        while record.back < sandboxes * (number + 1) and time.monotonic() < deadline:
            await asyncio.sleep(0.2)


def figures(title: str, record: Record) -> list[str]:
    lines = [f"## {title}", "", f"| {title} | times | p50 ms | p90 ms | p99 ms | most ms |"]
    lines.append("|---|---|---|---|---|---|")
    for kind in record.seen:
        times = sorted(record.times(kind))
        at = [times[min(len(times) - 1, int(len(times) * share))] for share in (0.5, 0.9, 0.99)]
        shown = " | ".join(f"{each:.0f}" for each in (*at, times[-1]))
        lines.append(f"| {kind} | {len(times)} | {shown} |")
    outcome = "nothing wrong" if not record.wrong else f"{len(record.wrong)} wrong"
    mark = "reached" if not record.wrong else "**missed**"
    lines += ["", f"- {mark}: {title}: {outcome}", *(f"    - {each}" for each in record.wrong[:20])]
    return [*lines, ""]


def plot(records: dict[str, Record], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(records), 1, figsize=(9, 3.2 * len(records)), squeeze=False)
    for axis, (title, record) in zip(axes[:, 0], records.items(), strict=True):
        for kind, seen in record.seen.items():
            axis.scatter(
                [at for at, _ in seen], [took for _, took in seen], s=3, alpha=0.4, label=kind
            )
        axis.plot(*_medians(record.seen.get("exec", [])), color="black", label="exec, p50 of 15 s")
        axis.set_yscale("log")
        axis.set_ylabel("ms")
        axis.set_xlabel("s")
        axis.set_title(title)
        axis.legend(markerscale=4, fontsize=7, loc="upper right")
    figure.tight_layout()
    figure.savefig(path)


def _medians(seen: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    bins: dict[int, list[float]] = {}
    for at, took in seen:
        bins.setdefault(int(at // 15), []).append(took)
    return [15 * each + 7.5 for each in sorted(bins)], [
        statistics.median(bins[each]) for each in sorted(bins)
    ]


INTRODUCTION = """# Sandboxes under load

`benchmarks/load.py` holds sandboxes, each of which counts in a file every {pace:g} seconds and is
checkpointed after every {every} counts, for {minutes:g} minutes; then the server is killed with -9
{kills} times under load, and every sandbox must come back with what was CHECKPOINTED.
{machine}, load {load:.1f}.

![latencies over the time](load.svg)
"""


def introduction(tried: Iterable[str], pace: float, minutes: float, kills: int) -> str:
    versions = (name for engine in tried for name in VERSIONS.get(engine, ()))
    return INTRODUCTION.format(
        pace=pace,
        every=CHECKPOINT_EVERY,
        minutes=minutes,
        kills=kills,
        machine=measure.machine(*versions),
        load=os.getloadavg()[0],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for engine, count in (("process", 100), ("gvisor", 30), ("runc", 0)):
        parser.add_argument(f"--{engine}", type=int, default=count, metavar="SANDBOXES")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--pace", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    given, _ = parser.parse_known_args()
    counts = {name: getattr(given, name) for name in ("process", "gvisor", "runc")}
    records = {}
    for engine, count in counts.items():
        if count:
            title = f"{engine}: {count} sandboxes for {given.minutes:g} minutes"
            print(title, file=sys.stderr)
            records[title] = asyncio.run(held(engine, count, given.minutes * 60, pace=given.pace))
    for engine, count in counts.items():
        if count and given.kills:
            some = min(count, KILLED_AT_MOST)
            title = f"{engine}: {given.kills} kills of the server under {some} sandboxes"
            print(title, file=sys.stderr)
            pace = min(given.pace, 1.0)
            records[title] = asyncio.run(held(engine, some, 0, pace=pace, kills=given.kills))
    used = [engine for engine, count in counts.items() if count]
    lines = [introduction(used, given.pace, given.minutes, given.kills)]
    for title, record in records.items():
        lines += figures(title, record)
    page = "\n".join(lines)
    print(page)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "load.md").write_text(page)
    plot(records, given.out / "load.svg")
    print(f"written to {given.out}/load.md and load.svg", file=sys.stderr)
    sys.exit(1 if any(each.wrong for each in records.values()) else 0)


if __name__ == "__main__":
    main()
