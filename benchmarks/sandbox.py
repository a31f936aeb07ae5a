"""The sandbox server against raw runsc in the same run: create, exec, checkpoint, attach, kill.

    python benchmarks/sandbox.py [--rounds 5] [--size 500] [--out DIR]

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
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import measure
from holdfast import Sandbox
from holdfast.runtime import engines
from holdfast.runtime.trial import clear, write_bundle

T = TypeVar("T")
FLAGS = ("--platform=systrap", "--network=none", "--ignore-cgroups", "--overlay2=none")
HOLD = "import os, time\nx = bytearray(os.urandom(1 << 20)) * {size}\nprint('up', flush=True)\n"
HOLD += "while True: time.sleep(1)"
GOALS = {
    "create": 0.15,
    "create, cold": 1.3,
    "exec echo": 0.5,
    "exec python": 0.7,
    "checkpoint, empty": 1.3,
    "checkpoint, full": 1.3,
    "restore, empty": 1.3,
    "restore, full": 1.3,
    "kill": None,
}


class Times(dict[str, list[float]]):
    """Milliseconds by what was done."""

    async def take(self, name: str, work: Awaitable[T]) -> T:
        began = time.perf_counter()
        result = await work
        self.setdefault(name, []).append((time.perf_counter() - began) * 1000)
        return result

    def run(self, name: str, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        self.setdefault(name, []).append((time.perf_counter() - began) * 1000)


class Raw:
    """runsc by itself, with one container at a time."""

    def __init__(self, folder: Path) -> None:
        found = engines.find("runsc")
        if found is None:
            raise SystemExit("there is no runsc: make setup, as root")
        self.folder = folder
        self.runsc = [str(found.program), f"--root={folder / 'state'}", *FLAGS]
        self.python = sys.base_prefix

    def do(self, *words: str) -> None:
        with open(self.folder / "log", "ab") as log:
            subprocess.run(
                [*self.runsc, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True
            )

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
        for kind, megabytes in (("empty", 0), ("full", size)):
            name = f"{kind}-{number}"
            argv = [self.interpreter(), "-c", HOLD.format(size=megabytes)]
            place = self.bundle(name, argv)
            run = ("run", "-detach", "-bundle", str(place), name)
            if kind == "empty":
                times.run("create", lambda run=run: self.do(*run))
                times["create, cold"] = times["create"]
                times.run("exec echo", lambda name=name: self.do("exec", name, "/usr/bin/echo"))
                python = ("exec", name, self.interpreter(), "-c", "print(1)")
                times.run("exec python", lambda python=python: self.do(*python))
            else:
                self.do(*run)
                time.sleep(2)  # it fills its memory
            image = self.folder / f"image-{name}"
            save = ("checkpoint", "-compression=none", f"-image-path={image}", name)
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


async def ours(url: str, token: str, size: int, times: Times) -> None:
    limits = {"memory_bytes": 2 << 30}
    cold = await times.take("create, cold", Sandbox.create(url, token=token, limits=limits))
    await cold.kill()
    await asyncio.sleep(1.5)  # the pool fills
    sandbox = await times.take("create", Sandbox.create(url, token=token, enable_checkpoint=True))

    async def run(*argv: str) -> None:
        process = await sandbox.exec(argv=list(argv))
        await process.wait()

    await times.take("exec echo", run("/usr/bin/echo"))
    await times.take("exec python", run("python3", "-c", "print(1)"))
    await times.take("checkpoint, empty", sandbox.checkpoint())
    back = await times.take("restore, empty", Sandbox.attach(url, sandbox.sandbox_id, token=token))
    process = await back.exec("python", HOLD.format(size=size))
    await process.stdout.read()
    await times.take("checkpoint, full", back.checkpoint(during_execution=True))
    again = await times.take("restore, full", Sandbox.attach(url, sandbox.sandbox_id, token=token))
    await times.take("kill", again.kill())


def table(raw: Times, holdfast: Times, rounds: int, size: int) -> str:
    lines = [
        (
            f"Medians of {rounds} rounds in ms, {size} MB held in memory where it says full;"
            f" {measure.machine()}, load {os.getloadavg()[0]:.1f}."
        ),
        "",
        "| | runsc alone | Holdfast | ratio | goal |",
        "|---|---|---|---|---|",
    ]
    for name, goal in GOALS.items():
        alone, here = statistics.median(raw[name]), statistics.median(holdfast[name])
        wanted = "50 ms" if goal is None else f"{goal}x"
        lines.append(f"| {name} | {alone:.0f} | {here:.0f} | {here / alone:.2f}x | {wanted} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=500)
    parser.add_argument("--out", type=Path)
    options, _ = parser.parse_known_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    raw, holdfast = Times(), Times()
    program = Path(sys.executable).with_name("holdfast")
    server = subprocess.Popen(
        [program, "serve", "--port", "0", "--engine", "gvisor"],
        env={**os.environ, "HOLDFAST_HOME": str(folder / "home")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url, _, token = [server.stdout.readline().split()[-1] for _ in range(3)]
        alone = Raw(folder)
        time.sleep(2)
        for number in range(options.rounds):
            alone.round(number, options.size, raw)
            asyncio.run(ours(url, token, options.size, holdfast))
    finally:
        server.terminate()
        server.wait(60)
        clear(folder)
    page = table(raw, holdfast, options.rounds, options.size)
    print(page)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "sandbox.md").write_text(f"# Sandboxes beside raw runsc\n\n{page}\n")


if __name__ == "__main__":
    main()
