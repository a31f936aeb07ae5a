"""The sandbox server against its engine alone in the same run: create, also from a template, exec,
checkpoint, attach, kill, and handing over to a second server, on a directory and on a bucket.

    python benchmarks/sandbox.py [--rounds 5] [--size 500] [--engine gvisor]... [--out DIR]

Every round does each step once on both sides, and begins programs several times, so that a noisy
moment hits them alike; the table shows medians in milliseconds and their ratio beside the
goal.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
from websockets.asyncio.client import ClientConnection, connect

from benchmarks import measure
from benchmarks.engine_alone import (
    CODE,
    HOLD,
    LIMITS,
    PROGRAMS,
    REST_SECONDS,
    RESTED,
    STAY,
    TURNS,
    VERSIONS,
    Raw,
    Times,
    execs,
)
from holdfast import Sandbox
from holdfast.runtime.trial import clear
from holdfast.testing.servers import SeaweedServer
from holdfast.testing.waiting import eventually

WARM = "import numpy"  # the code of the template
GOALS = {  # None where there is none
    "create": 0.15,
    "create, template": 0.15,
    "first cell, template": None,
    "first cell, no template": None,
    "create, cold": 1.3,
    "first word, cold": 1.3,
    "exec echo": 0.5,
    "exec echo, rested": None,
    "exec python": 0.7,
    "exec python, rested": None,
    "exec python, by argv": None,
    "exec python, by argv, rested": None,
    "exec python, ours": None,
    "checkpoint, empty": 1.3,
    "checkpoint, full": 1.3,
    "restore, empty": 1.3,
    "restore, empty, cold": None,
    "restore, full": 1.3,
    "restore, full, created before": None,
    "restore, full, from the store": None,
    "kill": 50.0,
    "handover": 500.0,
    "handover, bucket": 500.0,
}
HANDOVERS = ("handover", "handover, bucket")  # shown with the slowest
INTERPRETERS = ("exec python, by argv", "exec python, ours")
ABSOLUTE = ("kill", *HANDOVERS)  # goals in milliseconds
TIMES = 4  # handovers of one sandbox in a round, to and fro

INTRODUCTION = """# Sandboxes beside their engines alone

`make bench` does each step once on both sides in every round, so that a noisy moment hits them
alike. The programs of `exec` are begun {turns} times, one behind the other, on one side and then
on the other in every round, in a container and in a sandbox that have nothing else to do, and that
have run each of them once before; `rested` are {rested} more on each side, in turns, with a rest of
50 ms before each, so that both find the machine half asleep. `exec` is until all is known of it: of
the engine alone until its command returns, of Holdfast's until the client has the output and the
exit code. A checkpoint of the engine alone counts
with one fsync of its bytes; Holdfast's is durable in the store. `create` is from the pool, also
where there is a template, which has numpy imported; its first cell uses it, and one in a session
without a template imports it before. `create, cold` of the engine alone is until its command
returns, and Holdfast's until the agent inside has spoken; `first word` is until a Python program
inside has spoken, on both sides. `exec python` is code in the language `python`, as clients ask for
it; in gVisor it begins as a copy of an interpreter that waits. The engine alone begins the quicker
one of two interpreters for it: the system's, or the one that Holdfast runs on, with whatever its
site-packages import by themselves, which may be most of it. `by argv` is the system's, begun as a
program on both sides, and `ours` the other; `from inside`, in the second table, is what a process
inside takes that begins the same program by `posix_spawn` and waits for it, as often.
`restore` is on the server that made the checkpoint, whose image is still on its disk; `from the
store` is on another, which reads and verifies every byte. `restore, empty` is into a container that
was created before, on both sides, where the engine can, which is `runsc`; `cold` is into nothing,
as where no such container is ready, or what comes back does not fit. `restore, full` is into
nothing by the engine alone, and `created before` the same of Holdfast beside an engine that had
one. `handover` is until a second server of the same store runs the sandbox, {times} times to and
fro in every round; the store is a directory, or a bucket of SeaweedFS.

![milliseconds by step](sandbox.svg)

Medians of {rounds} rounds in ms, {size} MB of noise in memory where it says full. {machine}, load
{load:.1f}."""


@dataclass(frozen=True)
class Server:
    """One of ours."""

    process: subprocess.Popen[str]
    url: str
    token: str

    @classmethod
    def start(cls, engine: str, home: Path, **environ: str) -> Server:
        program = Path(sys.executable).with_name("holdfast")
        process = subprocess.Popen(
            [program, "serve", "--port", "0", "--engine", engine],
            env={**os.environ, "HOLDFAST_HOME": str(home), **environ},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        url, _, token = [process.stdout.readline().split()[-1] for _ in range(3)]
        return cls(process, url, token)

    def template(self, name: str, code: str) -> None:
        """Make one, of which some stand ready from now on."""
        self._client().post("/v1/templates", json={"name": name, "code": code}).raise_for_status()

    def is_ready(self, name: str) -> bool:
        found = self._client().get("/v1/templates").json()["templates"]
        return any(each["name"] == name and each["ready"] for each in found)

    def _client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=120)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


async def least(server: Server, scratch: Path, times: Times) -> None:
    """A connection that asks for nothing, and one small write that is durable."""

    async def reach() -> ClientConnection:
        address = server.url.replace("http", "ws", 1) + "/create"
        headers = {"Authorization": f"Bearer {server.token}"}
        link = await connect(address, additional_headers=headers)
        with scratch.open("wb", buffering=0) as file:
            file.write(bytes(4096))
            os.fsync(file.fileno())
        return link

    await (await times.take(LIMITS["create"], reach())).close()


async def ours(first: Server, second: Server, size: int, times: Times) -> None:
    url, token = first.url, first.token
    limits = {"memory_bytes": 2 << 30}
    new = await times.take("create, cold", Sandbox.create(url, token=token, limits=limits))
    times["first word, cold"] = times["create, cold"]
    await new.kill()
    await asyncio.sleep(2.0)  # the pool fills
    sandbox = await times.take("create", Sandbox.create(url, token=token, enable_checkpoint=True))
    await times.take("checkpoint, empty", sandbox.checkpoint())
    back = await times.take("restore, empty", Sandbox.attach(url, sandbox.sandbox_id, token=token))
    await back.checkpoint()
    # The next box is not prepared before it was quiet for a moment.
    cold = Sandbox.attach(url, sandbox.sandbox_id, token=token)
    back = await times.take("restore, empty, cold", cold)
    process = await back.exec("python", HOLD.format(size=size) + STAY)
    await process.stdout.read()
    await asyncio.sleep(2.0)  # now it is
    full = await times.take("checkpoint, full", back.checkpoint(during_execution=True))
    times.kept.append(full.stored_bytes)
    again = await times.take("restore, full", Sandbox.attach(url, sandbox.sandbox_id, token=token))
    times["restore, full, created before"] = times["restore, full"]
    await again.checkpoint(during_execution=True)
    elsewhere = Sandbox.attach(second.url, sandbox.sandbox_id, token=second.token)
    there = await times.take("restore, full, from the store", elsewhere)
    await times.take("kill", there.kill())


async def programs(alone: Raw, server: Server, number: int, raw: Times, holdfast: Times) -> None:
    """The same programs, in turns, in a container of the engine alone and in a sandbox of ours."""
    sandbox = await Sandbox.create(server.url, token=server.token)

    async def run(row: str, argv: Sequence[str]) -> None:
        if row in ("exec python", "exec python, rested"):
            process = await sandbox.exec("python", CODE)
        else:
            process = await sandbox.exec(argv=list(argv))
        assert (await process.wait()).code == 0
        assert await process.stdout.read_all()

    with alone.idle(number) as name:

        async def begin(side: int, row: str, argv: Sequence[str], *, counts: bool = True) -> None:
            if side:
                await (holdfast if counts else Times()).take(row, run(row, argv))
            else:
                (raw if counts else Times()).run(row, lambda: alone.do("exec", name, *argv))

        sides = (0, 1) if number % 2 else (1, 0)
        rows = execs(alone.interpreter())
        for row in (*rows, "exec python"):
            argv = rows.get(row) or rows[min(INTERPRETERS, key=lambda each: median(raw[each]))]
            for side in sides:
                await asyncio.sleep(REST_SECONDS)
                for turn in range(1 + TURNS):
                    await begin(side, row, argv, counts=turn > 0)
            if f"{row}, rested" in GOALS:
                for turn in range(2 * RESTED):
                    await asyncio.sleep(REST_SECONDS)
                    await begin(sides[turn % 2], f"{row}, rested", argv)
    await sandbox.kill()


async def handed_over(name: str, servers: Sequence[Server], times: Times) -> None:
    """A small sandbox, from one server to the other and back."""
    here, there = servers
    sandbox = await Sandbox.create(
        here.url, token=here.token, enable_checkpoint=True, enable_sandbox_handoff=True
    )
    for _ in range(TIMES):
        here, there = there, here
        arriving = Sandbox.attach(here.url, sandbox.sandbox_id, token=here.token)
        sandbox = await times.take(name, arriving)
    await sandbox.kill()


async def templates(server: Server, times: Times) -> None:
    """A new sandbox behind code that was run before, and one that runs it itself."""
    await asyncio.to_thread(eventually, lambda: server.is_ready("warm"), "one is ready", 120)

    async def cell(sandbox: Sandbox, code: str) -> None:
        process = await sandbox.exec("python", code, session=True)
        await process.wait()

    warm = Sandbox.create(server.url, token=server.token, template="warm")
    sandbox = await times.take("create, template", warm)
    await times.take("first cell, template", cell(sandbox, "print(numpy.arange(9).sum())"))
    await sandbox.kill()
    sandbox = await Sandbox.create(server.url, token=server.token)
    code = f"{WARM}\nprint(numpy.arange(9).sum())"
    await times.take("first cell, no template", cell(sandbox, code))
    await sandbox.kill()


def introduction(tried: Iterable[str], rounds: int, size: int) -> str:
    machine = measure.machine(*(name for engine in tried for name in VERSIONS[engine]))
    load = os.getloadavg()[0]
    return INTRODUCTION.format(
        rounds=rounds,
        size=size,
        machine=machine,
        load=load,
        times=TIMES,
        turns=TURNS,
        rested=RESTED,
    )


def table(engine: str, raw: Times, holdfast: Times) -> list[str]:
    lines = [
        "",
        f"| | {PROGRAMS[engine]} alone | Holdfast | ratio | goal |",
        "|---|---|---|---|---|",
    ]
    for name, goal in GOALS.items():
        here = statistics.median(holdfast[name])
        alone = f"{statistics.median(raw[name]):.0f}" if name in raw else ""
        ratio = f"{here / statistics.median(raw[name]):.2f}x" if name in raw else ""
        wanted = "" if goal is None else f"{goal:.0f} ms" if name in ABSOLUTE else f"{goal}x"
        most = f", at most {max(holdfast[name]):.0f}" if name in HANDOVERS else ""
        lines.append(f"| {name} | {alone} | {here:.0f}{most} | {ratio} | {wanted} |")
    written, kept = (statistics.median(each.kept) / 1e6 for each in (raw, holdfast))
    told = f"A full checkpoint takes {written:.0f} MB as {PROGRAMS[engine]} writes it, and "
    lines += ["", f"{told}{kept:.0f} MB in Holdfast's store."]
    return lines


def limits(engine: str, raw: Times, holdfast: Times) -> list[str]:
    """How far the engine itself is from a goal, and Holdfast from the engine."""
    lines = [
        "",
        f"| the least with {PROGRAMS[engine]} | ms | of the row | Holdfast beside it |",
        "|---|---|---|---|",
    ]
    for name, limit in LIMITS.items():
        if limit not in raw:
            continue  # this engine cannot
        least = statistics.median(raw[limit])
        row, here = statistics.median(raw[name]), statistics.median(holdfast[name])
        lines.append(
            f"| {name}: {limit} | {least:.0f} | {least / row:.2f}x | {here / least:.2f}x |"
        )
    return lines


def verdicts(engine: str, raw: Times, holdfast: Times) -> list[str]:
    lines = [""]
    for name, goal in GOALS.items():
        if goal is None:
            continue
        here = statistics.median(holdfast[name])
        figure = here if name in ABSOLUTE else here / statistics.median(raw[name])
        unit = " ms" if name in ABSOLUTE else " of the engine alone"
        word = "reached" if figure <= goal else "**missed**"
        told = f"- {engine}: {word}: {name} {figure:.3g}{unit}, at most {goal:g}"
        if figure > goal and (limit := LIMITS.get(name)) in raw:
            least = statistics.median(raw[limit]) / statistics.median(raw[name])
            told += f"; {limit}, with nothing of ours, it is {least:.3g}"
        lines.append(told)
    return lines


def plot(results: dict[str, tuple[Times, Times]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(6 * len(results), 4.5), squeeze=False)
    for axis, (engine, (raw, holdfast)) in zip(axes[0], results.items(), strict=True):
        names = list(GOALS)
        for shift, (label, times) in enumerate(((PROGRAMS[engine], raw), ("Holdfast", holdfast))):
            values = [statistics.median(times[name]) if name in times else 0 for name in names]
            places = [index + 0.4 * shift for index in range(len(names))]
            axis.barh(places, values, height=0.38, label=label)
        axis.set_yticks([index + 0.2 for index in range(len(names))], names)
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.set_xlabel("ms")
        axis.set_title(engine)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=500)
    parser.add_argument("--engine", action="append", choices=list(PROGRAMS))
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    given, _ = parser.parse_known_args()
    results = {}
    for engine in given.engine or PROGRAMS:
        results[engine] = measured(engine, given.rounds, given.size)
    lines = [introduction(results, given.rounds, given.size)]
    for engine, (raw, holdfast) in results.items():
        lines += table(engine, raw, holdfast) + limits(engine, raw, holdfast)
        lines += verdicts(engine, raw, holdfast)
    page = "\n".join(lines)
    print(page)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "sandbox.md").write_text(page + "\n")
    plot(results, given.out / "sandbox.svg")
    print(f"written to {given.out}/sandbox.md and sandbox.svg", file=sys.stderr)


def measured(engine: str, rounds: int, size: int) -> tuple[Times, Times]:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    raw, holdfast = Times(), Times()
    weed = SeaweedServer(folder / "weed")
    servers: list[Server] = []
    try:
        weed.start()
        bucket = {**weed.environ, "HOLDFAST_STORE": "s3://bucket/bench", "HOLDFAST_KEY": "ab" * 32}
        near = [Server.start(engine, folder / "home") for _ in range(2)]
        servers += near
        far = [Server.start(engine, folder / name, **bucket) for name in ("one", "two")]
        servers += far
        alone = Raw(engine, folder / "alone")
        near[0].template("warm", WARM)
        for number in range(rounds):
            alone.round(number, size, raw)
            asyncio.run(least(near[0], folder / "scratch", raw))
            asyncio.run(programs(alone, near[0], number, raw, holdfast))
            asyncio.run(ours(*near, size, holdfast))
            asyncio.run(templates(near[0], holdfast))
            asyncio.run(handed_over("handover", near, holdfast))
            asyncio.run(handed_over("handover, bucket", far, holdfast))
    finally:
        for server in servers:
            server.stop()
        weed.stop()
        clear(folder)
    return raw, holdfast


if __name__ == "__main__":
    main()
