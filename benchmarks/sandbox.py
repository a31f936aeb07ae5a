"""The sandbox server against its engine alone in the same run: create, exec, checkpoint, attach,
kill, and handing over to a second server.

    python benchmarks/sandbox.py [--rounds 5] [--size 500] [--engine gvisor]... [--out DIR]

Every round does each step once on both sides, so that a noisy moment hits them alike; the table
shows medians in milliseconds and their ratio beside the goal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from websockets.asyncio.client import ClientConnection, connect

from benchmarks import measure
from holdfast import Sandbox
from holdfast.runtime import engines
from holdfast.runtime.trial import clear, write_bundle

T = TypeVar("T")
PROGRAMS = {"gvisor": "runsc", "runc": "runc"}
VERSIONS = {"gvisor": ("runsc",), "runc": ("runc", "criu")}  # what each runs
FLAGS = {
    "gvisor": ("--platform=systrap", "--network=none", "--ignore-cgroups", "--overlay2=none"),
    "runc": (),
}
SAVING = {"gvisor": ("-compression=none",), "runc": ("--file-locks",)}
HOLD = "import os, time\nx = bytearray(os.urandom(1 << 20)) * {size}\nprint('up', flush=True)\n"
HOLD += "while True: time.sleep(1)"
# Says a word, then how long programs take that a process inside starts and waits for: no way in
# from outside is shorter. In ms: echo, Python, and Python without its site-packages.
INSIDE = """
import os, time
print(1, flush=True)
for argv in (["/usr/bin/echo"], [{python!r}, "-c", "print(1)"], [{python!r}, *{bare}]):
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, {{}}, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
    os.waitpid(pid, 0)
    print((time.perf_counter() - began) * 1000, flush=True)
time.sleep(99)
"""
BARE = ("-I", "-S", "-c", "print(1)")
GOALS = {
    "create": 0.15,
    "create, cold": 1.3,
    "first word, cold": 1.3,
    "exec echo": 0.5,
    "exec python": 0.7,
    "exec python, no site": 0.7,
    "checkpoint, empty": 1.3,
    "checkpoint, full": 1.3,
    "restore, empty": 1.3,
    "restore, full": 1.3,
    "kill": 50.0,
    "handover": 500.0,
}
ABSOLUTE = ("kill", "handover")  # goals in milliseconds
# What the engine alone takes at the least for what a row means, and where that was measured; for
# one out of the pool, what no server of this protocol does without.
LIMITS = {
    "create": "a connection, and a sync",
    "create, cold": "first word, cold",
    "exec echo": "echo, from inside",
    "exec python": "python, from inside",
    "exec python, no site": "python, no site, from inside",
}


INTRODUCTION = """# Sandboxes beside their engines alone

`make bench` does each step once on both sides in every round, so that a noisy moment hits them
alike. A checkpoint of the engine alone counts with one fsync of its bytes; Holdfast's is durable in
the store. `create` is from the pool. `create, cold` of the engine alone is until its command
returns, and Holdfast's until the agent inside has spoken; `first word` is until a Python program
inside has spoken, on both sides. `exec python` runs whatever the machine's interpreter imports by
itself from its site-packages, which may be most of it; `no site` is without (`-I -S`). `handover`
is until a second server of the same store runs the sandbox.

![milliseconds by step](sandbox.svg)

Medians of {rounds} rounds in ms, {size} MB in memory where it says full. {machine}, load
{load:.1f}."""


class Times(dict[str, list[float]]):
    """Milliseconds by what was done."""

    async def take(self, name: str, work: Awaitable[T]) -> T:
        began = time.perf_counter()
        result = await work
        self.setdefault(name, []).append((time.perf_counter() - began) * 1000)
        return result

    def run(self, name: str, work: Callable[[], T]) -> T:
        began = time.perf_counter()
        result = work()
        self.setdefault(name, []).append((time.perf_counter() - began) * 1000)
        return result


class Raw:
    """An engine by itself, with one container at a time."""

    def __init__(self, engine: str, folder: Path) -> None:
        found = engines.find(PROGRAMS[engine])
        if found is None:
            raise SystemExit(f"there is no {PROGRAMS[engine]}: make setup, as root")
        self.engine = engine
        self.folder = folder
        folder.mkdir()
        self.words = [str(found.program), f"--root={folder / 'state'}", *FLAGS[engine]]
        self.python = sys.base_prefix

    def do(self, *words: str) -> None:
        # A container of runc whose output goes to a file of the host cannot be frozen.
        subprocess.run(
            [*self.words, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=engines.environment(),
            check=True,
        )

    def speak(self, number: int) -> IO[str]:
        """Run a container until its program has said something; it has more to say."""
        name = f"word-{number}-{os.getpid()}"
        program = INSIDE.format(python=self.interpreter(), bare=BARE)
        argv = [self.interpreter(), "-I", "-S", "-c", program]
        run = ("run", "-detach", "-bundle", str(self.bundle(name, argv)), name)
        hear, say = os.pipe()
        silent = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(
            [*self.words, *run], stdout=say, env=engines.environment(), check=True, **silent
        )
        os.close(say)
        told = os.fdopen(hear)
        told.readline()
        return told

    def bundle(self, name: str, argv: list[str]) -> Path:
        place = self.folder / name
        place.mkdir()
        write_bundle(place, argv)
        config = json.loads((place / "config.json").read_text())
        prefix = os.path.realpath(self.python)
        if not prefix.startswith("/usr"):
            (place / "rootfs" / prefix.lstrip("/")).mkdir(parents=True)
            bind = {"destination": prefix, "type": "bind", "source": prefix}
            config["mounts"].append({**bind, "options": ["bind", "ro"]})
        (place / "config.json").write_text(json.dumps(config))
        return place

    def interpreter(self) -> str:
        return f"{os.path.realpath(self.python)}/bin/python3"

    def round(self, number: int, size: int, times: Times) -> None:
        with times.run("first word, cold", lambda: self.speak(number)) as told:
            for name in ("exec echo", "exec python", "exec python, no site"):
                times.setdefault(LIMITS[name], []).append(float(told.readline()))
        self.do("delete", "-force", f"word-{number}-{os.getpid()}")
        for kind, megabytes in (("empty", 0), ("full", size)):
            name = f"{kind}-{number}-{os.getpid()}"
            argv = [self.interpreter(), "-c", HOLD.format(size=megabytes)]
            place = self.bundle(name, argv)
            run = ("run", "-detach", "-bundle", str(place), name)
            if kind == "empty":
                times.run("create", lambda run=run: self.do(*run))
                times["create, cold"] = times["create"]
                times.run("exec echo", lambda name=name: self.do("exec", name, "/usr/bin/echo"))
                python = ("exec", name, self.interpreter(), "-c", "print(1)")
                times.run("exec python", lambda python=python: self.do(*python))
                bare = ("exec", name, self.interpreter(), *BARE)
                times.run("exec python, no site", lambda bare=bare: self.do(*bare))
            else:
                self.do(*run)
                time.sleep(2)  # it fills its memory
            image = self.folder / f"image-{name}"
            save = ("checkpoint", *SAVING[self.engine], f"-image-path={image}", name)
            times.run(
                f"checkpoint, {kind}", lambda save=save, image=image: (self.do(*save), _sync(image))
            )
            self.do("delete", "-force", name)
            back = ("restore", "-detach", f"-image-path={image}", "-bundle", str(place), name)
            times.run(f"restore, {kind}", lambda back=back: self.do(*back))
            self.do("kill", name, "KILL")
            times.run("kill", lambda name=name: self.do("delete", "-force", name))
            shutil.rmtree(image)


def _sync(image: Path) -> None:
    """One fsync of its bytes: what durable means at the least."""
    for each in image.iterdir():
        fd = os.open(each, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


@dataclass(frozen=True)
class Server:
    """One of ours."""

    process: subprocess.Popen[str]
    url: str
    token: str

    @classmethod
    def start(cls, engine: str, home: Path) -> Server:
        process = subprocess.Popen(
            [
                Path(sys.executable).with_name("holdfast"),
                "serve",
                "--port",
                "0",
                "--engine",
                engine,
            ],
            env={**os.environ, "HOLDFAST_HOME": str(home)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        url, _, token = [process.stdout.readline().split()[-1] for _ in range(3)]
        return cls(process, url, token)

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
    cold = await times.take("create, cold", Sandbox.create(url, token=token, limits=limits))
    times["first word, cold"] = times["create, cold"]
    await cold.kill()
    await asyncio.sleep(2.0)  # the pool fills
    sandbox = await times.take("create", Sandbox.create(url, token=token, enable_checkpoint=True))

    async def run(*argv: str) -> None:
        process = await sandbox.exec(argv=list(argv))
        await process.wait()

    await times.take("exec echo", run("/usr/bin/echo"))
    await times.take("exec python", run("python3", "-c", "print(1)"))
    await times.take("exec python, no site", run("python3", *BARE))
    await times.take("checkpoint, empty", sandbox.checkpoint())
    back = await times.take("restore, empty", Sandbox.attach(url, sandbox.sandbox_id, token=token))
    process = await back.exec("python", HOLD.format(size=size))
    await process.stdout.read()
    await times.take("checkpoint, full", back.checkpoint(during_execution=True))
    again = await times.take("restore, full", Sandbox.attach(url, sandbox.sandbox_id, token=token))
    await times.take("kill", again.kill())
    moving = await Sandbox.create(
        url, token=token, enable_checkpoint=True, enable_sandbox_handoff=True
    )
    arriving = Sandbox.attach(second.url, moving.sandbox_id, token=second.token)
    moved = await times.take("handover", arriving)
    await moved.kill()


def introduction(tried: Iterable[str], rounds: int, size: int) -> str:
    machine = measure.machine(*(name for engine in tried for name in VERSIONS[engine]))
    return INTRODUCTION.format(rounds=rounds, size=size, machine=machine, load=os.getloadavg()[0])


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
        wanted = f"{goal:.0f} ms" if name in ABSOLUTE else f"{goal}x"
        lines.append(f"| {name} | {alone} | {here:.0f} | {ratio} | {wanted} |")
    return lines


def limits(engine: str, raw: Times, holdfast: Times) -> list[str]:
    """How far the engine itself is from a goal, and Holdfast from the engine."""
    lines = [
        "",
        f"| the least with {PROGRAMS[engine]} | ms | of the row | Holdfast beside it |",
        "|---|---|---|---|",
    ]
    for name, limit in LIMITS.items():
        least = statistics.median(raw[limit])
        row, here = statistics.median(raw[name]), statistics.median(holdfast[name])
        lines.append(
            f"| {name}: {limit} | {least:.0f} | {least / row:.2f}x | {here / least:.2f}x |"
        )
    return lines


def verdicts(engine: str, raw: Times, holdfast: Times) -> list[str]:
    lines = [""]
    for name, goal in GOALS.items():
        here = statistics.median(holdfast[name])
        figure = here if name in ABSOLUTE else here / statistics.median(raw[name])
        unit = " ms" if name in ABSOLUTE else " of the engine alone"
        word = "reached" if figure <= goal else "**missed**"
        lines.append(f"- {engine}: {word}: {name} {figure:.3g}{unit}, at most {goal:g}")
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
    servers = [Server.start(engine, folder / "home") for _ in range(2)]
    try:
        alone = Raw(engine, folder / "alone")
        time.sleep(2)
        for number in range(rounds):
            alone.round(number, size, raw)
            asyncio.run(least(servers[0], folder / "scratch", raw))
            asyncio.run(ours(*servers, size, holdfast))
    finally:
        for server in servers:
            server.stop()
        clear(folder)
    return raw, holdfast


if __name__ == "__main__":
    main()
