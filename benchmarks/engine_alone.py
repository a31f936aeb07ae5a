"""An engine by itself: what Holdfast is compared with, and the least that anything takes on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from blake3 import blake3

from holdfast.runtime import engines
from holdfast.runtime.trial import write_bundle

T = TypeVar("T")
PROGRAMS = {"gvisor": "runsc", "runc": "runc"}
VERSIONS = {"gvisor": ("runsc",), "runc": ("runc", "criu")}  # what each runs
FLAGS = {
    "gvisor": ("--platform=systrap", "--network=none", "--ignore-cgroups", "--overlay2=none"),
    "runc": (),
}
SAVING = {"gvisor": ("-compression=none",), "runc": ("--file-locks",)}
# Noise to its last byte: of one piece that repeats, a store would keep the first only.
HOLD = "import os, time\nx = os.urandom({size} << 20)\nprint('up', flush=True)\n"
STAY = "while True: time.sleep(1)"
BEAT = "while True: open('/beat', 'w').close(); time.sleep(0.01)"  # seen from outside
IDLE_SECONDS = 2.0  # a container's own program begins, and would take the processors
CODE = "print(1)"
TURNS = 10  # of each program in a round, one behind the other
RESTED = 5  # and so many with a rest before each
REST_SECONDS = 0.05  # so that nothing of the one is left when the next begins
# Says a word, then how long programs take that a process inside starts with what its library has
# for that and waits for, in ms; each once more than is told, as elsewhere.
INSIDE = """
import os, time
print(1, flush=True)
for argv in {programs}:
    time.sleep({rest})
    for turn in range(1 + {turns}):
        began = time.perf_counter()
        pid = os.posix_spawn(argv[0], argv, {{}}, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
        os.waitpid(pid, 0)
        if turn:
            print((time.perf_counter() - began) * 1000, flush=True)
time.sleep(99)
"""
# What the engine alone takes at the least for what a row means, and where that was measured; for
# one out of the pool, what no server of this protocol does without. Attaching where the image still
# lies on the disk verifies nothing, but means that something inside runs.
LIMITS = {
    "create": "a connection, and a sync",
    "create, template": "a connection, and a sync",
    "create, cold": "first word, cold",
    "exec echo": "echo, from inside",
    "exec python, by argv": "python, from inside",
    "exec python, ours": "python, ours, from inside",
    "restore, full": "restored, until something inside runs",
    "restore, full, from the store": "the image read, verified, and restored",
}


def execs(python: str) -> dict[str, tuple[str, ...]]:
    """Programs that are begun in what runs: the system's interpreter, and the one that we are."""
    return {
        "exec echo": ("/usr/bin/echo",),
        "exec python, by argv": ("/usr/bin/python3", "-c", CODE),
        "exec python, ours": (python, "-c", CODE),
    }


class Times(dict[str, list[float]]):
    """Milliseconds by what was done, and how many bytes each full checkpoint took."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[int] = []

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
        programs = [*execs(self.interpreter()).values()]
        program = INSIDE.format(programs=programs, turns=TURNS, rest=REST_SECONDS)
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
            for name in execs(""):
                for _ in range(TURNS):
                    times.setdefault(LIMITS[name], []).append(float(told.readline()))
        self.do("delete", "-force", f"word-{number}-{os.getpid()}")
        for kind, megabytes, then in (("empty", 0, STAY), ("full", size, BEAT)):
            name = f"{kind}-{number}-{os.getpid()}"
            argv = [self.interpreter(), "-c", HOLD.format(size=megabytes) + then]
            place = self.bundle(name, argv)
            run = ("run", "-detach", "-bundle", str(place), name)
            if kind == "empty":
                times.run("create", lambda run=run: self.do(*run))
                times["create, cold"] = times["create, template"] = times["create"]
                time.sleep(IDLE_SECONDS)
            else:
                self.do(*run)
                _await(place / "rootfs" / "beat")  # its memory is full
            image = self.folder / f"image-{name}"
            save = ("checkpoint", *SAVING[self.engine], f"-image-path={image}", name)
            times.run(
                f"checkpoint, {kind}", lambda save=save, image=image: (self.do(*save), _sync(image))
            )
            self.do("delete", "-force", name)
            if kind == "full":
                times.kept.append(sum(each.stat().st_size for each in image.iterdir()))
                times.run("verified", lambda image=image: _verify(image))
            if self.engine == "gvisor":  # runc has no such way
                row = {"empty": "restore, empty", "full": "restore, full, created before"}[kind]
                self.restore_prepared(f"prepared-{name}", place, image, row, times)
            back = ("restore", "-detach", f"-image-path={image}", "-bundle", str(place), name)
            (place / "rootfs" / "beat").unlink(missing_ok=True)
            began = time.perf_counter()
            cold = {"empty": "restore, empty, cold", "full": "restore, full"}[kind]
            times.run(cold, lambda back=back: self.do(*back))
            if self.engine != "gvisor" and kind == "empty":
                times["restore, empty"] = times[cold]
            if kind == "full":
                _await(place / "rootfs" / "beat")
                run_inside = (time.perf_counter() - began) * 1000
                times.setdefault(LIMITS["restore, full"], []).append(run_inside)
                both = times["verified"][-1] + run_inside
                times.setdefault(LIMITS["restore, full, from the store"], []).append(both)
                times["restore, full, from the store"] = times["restore, full"]
            self.do("kill", name, "KILL")
            times.run("kill", lambda name=name: self.do("delete", "-force", name))
            shutil.rmtree(image)

    @contextmanager
    def idle(self, number: int) -> Iterator[str]:
        """The name of a container that has nothing to do."""
        name = f"idle-{number}-{os.getpid()}"
        argv = [self.interpreter(), "-c", HOLD.format(size=0) + STAY]
        self.do("run", "-detach", "-bundle", str(self.bundle(name, argv)), name)
        try:
            time.sleep(IDLE_SECONDS)
            yield name
        finally:
            self.do("kill", name, "KILL")
            self.do("delete", "-force", name)

    def restore_prepared(self, name: str, place: Path, image: Path, row: str, times: Times) -> None:
        """Restore into a container that stood ready, as one does who knows what comes."""
        self.do("create", "-bundle", str(place), name)
        back = ("restore", "-detach", f"-image-path={image}", "-bundle", str(place), name)
        times.run(row, lambda: self.do(*back))
        self.do("kill", name, "KILL")
        self.do("delete", "-force", name)


def _await(path: Path) -> None:
    while not path.exists():
        time.sleep(0.001)


def _verify(image: Path) -> None:
    """Every byte read and hashed as the store hashes it, on all cores: nobody restores what came
    from elsewhere with less."""
    for each in image.iterdir():
        blake3(max_threads=blake3.AUTO).update_mmap(each)


def _sync(image: Path) -> None:
    """One fsync of its bytes: what durable means at the least."""
    for each in image.iterdir():
        fd = os.open(each, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
