"""The container wrapper beside plain runc and bare CRIU: overhead per call, and frozen time.

    python benchmarks/container.py [--rounds 3] [--megabytes 200] [--out DIR]

Plain runc and the wrapper take turns within each round, so that a noisy moment hits both; what
counts is the difference of the two, and ratios. Needs root, runc, criu and busybox.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import measure
from holdfast.oci.installation import PROGRAM, carry_out, plan_install
from holdfast.oci.trampoline import Trampoline, bake, compile_quick
from holdfast.runtime import engines
from holdfast.testing.bundles import Bundle
from holdfast.testing.waiting import eventually

LARGER = 4  # times the memory, for restores: what is small comes back at once in any way
FILL = (
    'mkdir -p /dev/shm; i=0; exec busybox awk \'BEGIN {{ s = "x"; while (length(s) < {size})'
    ' s = s s; print "ready" > "/ready"; close("/ready"); while (1) system("sleep .1") }}\''
)


def timed(command: Sequence[str], environ: dict[str, str]) -> float:
    """Milliseconds of one command, its output thrown away."""
    start = time.perf_counter()
    subprocess.run(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return (time.perf_counter() - start) * 1000


@dataclass(frozen=True, slots=True)
class Call:
    """Milliseconds of one command, plain and through both forms of the installed program."""

    name: str
    plain: float
    quick: float
    script: float

    @property
    def added(self) -> float:
        return self.quick - self.plain


def calls(scratch: Path, rounds: int) -> list[Call]:
    """What the installed trampoline adds to calls about containers that have not opted in."""
    runc = engines.find("runc")
    if runc is None:
        raise SystemExit("there is no runc")
    wrappers = _install(scratch, str(runc.program))
    bundle = scratch / "plain"
    bundle.mkdir()
    (bundle / "config.json").write_text(json.dumps({"ociVersion": "1.0.2", "filler": "x" * 6000}))
    root = ["--root", str(scratch / "state"), "--log", "/dev/null", "--log-format", "json"]
    lines = {
        "--version": ["--version"],
        "state": [*root, "state", "tc"],
        "start": [*root, "start", "tc"],
        "kill": [*root, "kill", "tc", "9"],
        "delete": [*root, "delete", "--force", "tc"],
        "create": [*root, "create", "--bundle", str(bundle), "tc"],
    }
    environ = dict(os.environ)
    rows = []
    for name, words in lines.items():
        found: list[list[float]] = [[], [], []]
        for _ in range(100 * rounds):
            for program, times in zip((str(runc.program), *wrappers), found, strict=True):
                times.append(timed([program, *words], environ))
        rows.append(Call(name, *map(_fastest, found)))
    return rows


def _install(scratch: Path, runc: str) -> tuple[str, str]:
    """The program as installed where there is a compiler, and where there is none."""
    quick = compile_quick(runc, str(scratch / "script" / PROGRAM), os.environ)
    if quick is None:
        raise SystemExit("there is no C compiler")
    script = bake(sys.executable, runc)
    for name, made in (("quick", Trampoline(script, quick)), ("script", Trampoline(script))):
        carry_out(plan_install(scratch / name, ["podman"], made))
    return str(scratch / "quick" / PROGRAM), str(scratch / "script" / PROGRAM)


def _fastest(values: Sequence[float]) -> float:
    """The fastest tenth: what a call takes when nobody else wants the processor."""
    return statistics.quantiles(values, n=10)[0]


def frozen(scratch: Path, megabytes: int, rounds: int) -> dict[str, list[float]]:
    """For how long a container stands still: CRIU's own figure for a bare `runc checkpoint`, and
    from our pause to our resume, with the writable layer captured in between."""
    found: dict[str, list[float]] = {"criu": [], "criu, whole command": [], "holdfast": []}
    script = FILL.format(size=megabytes * 1_000_000)
    bundle = Bundle(scratch / "frozen", ["sh", "-c", script])
    try:
        bundle.runc("create")
        bundle.runc("start")
        eventually((bundle.bundle / "rootfs/ready").exists, "the memory is filled", 120)
        (bundle.bundle / "rootfs/data").write_bytes(os.urandom(20_000_000))
        for number in range(rounds):
            images = scratch / f"bare-{number}"
            words = ["checkpoint", "--image-path", str(images), "--work-path", str(images)]
            runc = ["runc", "--root", str(bundle.root), *words, "--leave-running", "tc"]
            found["criu, whole command"].append(timed(runc, bundle.environ))
            found["criu"].append(_criu_frozen(images))
            bundle.runc("checkpoint", "--leave-running")
            told = (bundle.folder / "runc.log").read_text().splitlines()[-1]
            found["holdfast"].append(float(json.loads(told)["frozen_ms"]))
    finally:
        bundle.close()
    return found


def revived(scratch: Path, megabytes: int, rounds: int) -> dict[str, list[float]]:
    """From `create` until the container goes on, eagerly and lazily, in turns with what runc and
    CRIU take by themselves for the same images: they verify nothing, and fill no layer."""
    ways = ("eager", "lazy", "eager, bare", "lazy, bare")
    found: dict[str, list[float]] = {way: [] for way in ways}
    script = FILL.format(size=megabytes * 1_000_000)
    bundle = Bundle(scratch / "revived", ["sh", "-c", script])
    try:
        bundle.runc("create")
        bundle.runc("start")
        eventually((bundle.bundle / "rootfs/ready").exists, "the memory is filled", 300)
        bundle.runc("checkpoint")
        bundle.runc("delete")
        (memory,) = (bundle.folder / "checkpoints").glob("*/*/@*/memory")
        for number, way in enumerate(ways * rounds):
            if way.endswith("bare"):  # in the layer that the one before has filled
                work = scratch / f"restored-{number}"
                found[way].append(_bare(bundle, memory, work, lazily=way.startswith("lazy")))
                continue
            bundle.renew()
            bundle.set_policy(f'lazy = "{"auto" if way == "lazy" else "never"}"')
            start = time.perf_counter()
            bundle.runc("create")
            bundle.runc("start")
            found[way].append((time.perf_counter() - start) * 1000)
            bundle.runc("delete", "--force")
    finally:
        bundle.close()
    return found


def _bare(bundle: Bundle, memory: Path, work: Path, *, lazily: bool) -> float:
    """Milliseconds until `runc restore` is done, with CRIU's own server of pages or without."""
    work.mkdir()
    config = json.loads((bundle.bundle / "config.json").read_text())
    config["annotations"] = {}
    config["root"]["path"] = str(bundle.bundle / "rootfs")
    (work / "config.json").write_text(json.dumps(config))
    runc = ["runc", "--root", str(work / "state")]
    paths = ["--image-path", str(memory), "--work-path", str(work), "--bundle", str(work)]
    words = [*runc, "restore", "--detach", "--file-locks", *paths]
    server = None
    start = time.perf_counter()
    if lazily:
        served = ["criu", "lazy-pages", "--images-dir", str(memory), "--work-dir", str(work)]
        null = subprocess.DEVNULL
        server = subprocess.Popen(
            served, env=bundle.environ, stdin=null, stdout=null, stderr=null, cwd="/"
        )
        while not (work / "lazy-pages.socket").exists():
            time.sleep(0.002)
        words.append("--lazy-pages")
    subprocess.run(
        [*words, "bare"],
        env=bundle.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    took = (time.perf_counter() - start) * 1000
    timed([*runc, "delete", "--force", "bare"], bundle.environ)
    if server is not None:
        server.kill()
        server.wait()
    return took


def _criu_frozen(images: Path) -> float:
    """Milliseconds, from the protocol buffer in CRIU's `stats-dump`."""
    data = (images / "stats-dump").read_bytes()[12:]  # two magic numbers and a length

    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                return value, at

    _, at = number(0)  # the dump's own message
    _, at = number(at)
    fields = {}
    while at < len(data):
        key, at = number(at)
        fields[key >> 3], at = number(at)
    return fields[2] / 1000  # frozen_time


def report(
    rows: list[Call],
    stood: dict[str, list[float]],
    back: dict[str, list[float]],
    megabytes: int,
) -> str:
    frozen_for = {name: statistics.median(values) for name, values in stood.items()}
    took = {name: statistics.median(values) for name, values in back.items()}
    worst = max(rows, key=lambda row: row.added)
    script = max(row.script - row.plain for row in rows)
    ratio = frozen_for["holdfast"] / frozen_for["criu, whole command"]
    machine = measure.machine("runc", "criu")
    goals = [
        (f"at most 1 ms is added to a call ({worst.added:.2f}, `{worst.name}`)", worst.added <= 1),
        (
            f"back lazily in less time than eagerly ({took['lazy'] / took['eager']:.2f} of it)",
            took["lazy"] < took["eager"],
        ),
    ]
    lines = [
        f"Calls: the fastest tenth. The rest: medians. {machine}, {_load()}.",
        "",
        "| call, container not opted in, ms | plain runc | holdfast-runc | added | script alone |",
        "|---|---|---|---|---|",
        *(
            f"| `{row.name}` | {row.plain:.2f} | {row.quick:.2f} | {row.added:.2f}"
            f" | {row.script - row.plain:.2f} |"
            for row in rows
        ),
        "",
        f"| frozen, {megabytes} MB of memory and 20 MB of files | ms |",
        "|---|---|",
        f"| CRIU's own figure, bare `runc checkpoint`, without files | {frozen_for['criu']:.0f} |",
        f"| that whole command | {frozen_for['criu, whole command']:.0f} |",
        f"| holdfast, from freezing to thawing, with files | {frozen_for['holdfast']:.0f} |",
        "",
        f"| back, {LARGER * megabytes} MB of memory | eager, ms | lazy, ms | lazy of eager |",
        "|---|---|---|---|",
        *(
            f"| {name} | {eager:.0f} | {lazy:.0f} | {lazy / eager:.2f} |"
            for name, eager, lazy in (
                (
                    "holdfast, `create` and `start`, every byte verified",
                    took["eager"],
                    took["lazy"],
                ),
                ("bare `runc restore`", took["eager, bare"], took["lazy, bare"]),
            )
        ),
        "",
        *(f"- {'reached' if ok else '**missed**'}: {what}" for what, ok in goals),
        f"- frozen for {ratio:.2f} of the time of a bare `runc checkpoint`, files included",
        f"- without a compiler, the script adds up to {script:.2f} ms (`create`)",
    ]
    return "\n".join(lines)


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def plot(rows: list[Call], stood: dict[str, list[float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    places = range(len(rows))
    forms = {
        "plain runc": [row.plain for row in rows],
        "holdfast-runc": [row.quick for row in rows],
        "script alone": [row.script for row in rows],
    }
    for number, (label, values) in enumerate(forms.items()):
        left.bar([x + (number - 1) * 0.27 for x in places], values, 0.27, label=label)
    left.set_xticks(list(places), [row.name for row in rows])
    left.set_ylabel("ms per call, container not opted in")
    left.legend()
    right.bar(list(stood), [statistics.median(values) for values in stood.values()])
    right.set_ylabel("ms frozen")
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    given, _ = parser.parse_known_args()  # `make bench` gives all benchmarks the same options
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as temporary:
        scratch = Path(temporary)
        print("calls", file=sys.stderr)
        rows = calls(scratch, given.rounds)
        print("frozen time", file=sys.stderr)
        stood = frozen(scratch, given.megabytes, given.rounds)
        print("restoring", file=sys.stderr)
        back = revived(scratch, LARGER * given.megabytes, given.rounds)
    text = report(rows, stood, back, given.megabytes)
    print(text)
    measure.publish(given.out / "container.md", text)
    plot(rows, stood, given.out / "container.svg")
    print(f"written to {given.out}/container.md and container.svg", file=sys.stderr)


if __name__ == "__main__":
    main()
