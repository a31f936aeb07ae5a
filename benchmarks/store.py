"""The store against tar, restic and borg on memory-image-like data: a table and a plot.

    python benchmarks/store.py [--rounds 3] [--data DIR] [--out docs/benchmarks]

Every round runs every tool once on the same data, so that a noisy moment hits all alike; the table
shows medians, and the goals are judged as ratios. `cp` shows what this machine takes for moving the
bytes alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import images, measure
from benchmarks.measure import Cost

STEPS = ("full", "1% in runs", "1% scattered", "restore")
_COPY = "cp, bytes alone"
_BORG = "borg, fixed 256K"
_OURS = "holdfast, library"
_WHOLE = "holdfast, whole process"
_CHILD = [sys.executable, str(Path(__file__).with_name("holdfast_store.py"))]


@dataclass(frozen=True)
class Tool:
    """A peer: how to begin a repository, save a folder into it, and bring the last one back."""

    name: str
    version: str
    begin: Callable[[Path], str | None]
    save: Callable[[Path, Path], str]
    restore: Callable[[Path, Path], str]


def tools() -> list[Tool]:
    return [
        Tool(
            _COPY,
            _version("cp --version"),
            lambda repo: None,
            lambda repo, src: f"cp -r {src} {repo}/ && sync -d {repo}/{src.name}/*",
            lambda repo, out: f"cp -r {repo}/img3 {out}",
        ),
        Tool(
            "tar, zstd -1 -T2",
            _version("zstd --version"),
            lambda repo: None,
            lambda repo, src: (
                f"tar -C {src} -cf - . | zstd -1 -T2 -q -o {repo}/{src.name}.tzst"
                f" && sync -d {repo}/{src.name}.tzst"
            ),
            lambda repo, out: f"mkdir {out} && zstd -dcq {repo}/img3.tzst | tar -C {out} -xf -",
        ),
        Tool(
            "restic",
            _version("restic version"),
            lambda repo: f"restic -r {repo} init -q",
            lambda repo, src: f"cd {src} && restic -r {repo} --no-cache backup -q .",
            lambda repo, out: f"restic -r {repo} --no-cache restore -q latest --target {out}",
        ),
        Tool(
            _BORG,
            _version("borg --version"),
            lambda repo: f"borg init -e none {repo}",
            lambda repo, src: (
                f"cd {src} && borg create --compression zstd,1 --chunker-params fixed,262144"
                f" {repo}::{src.name} ."
            ),
            lambda repo, out: f"mkdir {out} && cd {out} && borg extract {repo}::img3",
        ),
    ]


def _version(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command.split()[0]} is not installed; `make setup-test` installs it")
    first = done.stdout.strip().splitlines()[0]
    return first.split("compiled")[0].split(", by")[0].strip().strip("*").strip()[:60]


def measure_tool(tool: Tool, data: Path, scratch: Path) -> list[Cost]:
    repo, out = scratch / "repo", scratch / "out"
    for place in (repo, out):
        shutil.rmtree(place, ignore_errors=True)
    repo.mkdir()
    env = {"RESTIC_PASSWORD": "bench", "BORG_BASE_DIR": str(scratch / "borg")}
    if command := tool.begin(repo):
        measure.run(command, repo, env=env)
    images = [data / f"img{i}" for i in (1, 2, 3)]
    costs = [measure.run(tool.save(repo, each), repo, env=env, reads=each) for each in images]
    costs.append(measure.run(tool.restore(repo, out), repo, env=env, reads=repo))
    _check_same(out, data / "img3")
    return costs


def measure_holdfast(data: Path, scratch: Path) -> tuple[list[Cost], list[Cost]]:
    """As whole processes, and as the library's own time inside them."""
    repo, out = scratch / "store", scratch / "out"
    for place in (repo, out):
        shutil.rmtree(place, ignore_errors=True)
    env = {"HOLDFAST_HOME": str(scratch / "home")}
    images = [data / f"img{i}" for i in (1, 2, 3)]
    steps = [(["save", str(repo), str(each)], each) for each in images]
    steps.append((["restore", str(repo), str(out), "img3"], repo))
    whole, inside = [], []
    for step, reads in steps:
        cost, wall = _child(step, repo, env, reads)
        whole.append(cost)
        inside.append(Cost(wall, cost.cpu, cost.added_mb))
    _check_same(out, data / "img3")
    return whole, inside


def measure_looking(data: Path, scratch: Path) -> tuple[float, float]:
    """Seconds for reading the files alone, and for reading and hashing every byte."""
    nothing = scratch / "nothing"
    nothing.mkdir(exist_ok=True)
    read, hashed = (
        _child([verb, str(data / "img3")], nothing, {}, data / "img3")[1]
        for verb in ("read", "hash")
    )
    return read, hashed


def measure_array(scratch: Path) -> tuple[float, float]:
    """Seconds until a raw array of 1 GB answers in a fresh process: inside, and with its start."""
    repo = scratch / "arrays"
    shutil.rmtree(repo, ignore_errors=True)
    env = {"HOLDFAST_HOME": str(scratch / "home")}
    _child(["save-array", str(repo), str(1 << 30)], repo, env)
    cost, wall = _child(["map-array", str(repo)], repo, env)
    return wall, cost.wall


def measure_twenty(data: Path, scratch: Path) -> tuple[float, float]:
    """MB written by twenty steps of 1% scattered pages of incompressible data, and MB changed."""
    import numpy as np

    from holdfast.store import open_store

    repo = scratch / "twenty"
    shutil.rmtree(repo, ignore_errors=True)
    os.environ["HOLDFAST_HOME"] = str(scratch / "home")
    dice = np.random.default_rng(3)
    image = dice.integers(0, 256, 1 << 30, dtype=np.uint8)
    pages = image.reshape(-1, 4096)
    store = open_store(repo)
    with store.draft("sandbox/twenty") as draft:
        draft.put("memory", image, split="pages")
        draft.commit()
    first = measure.size_of(repo)
    changed = 0
    for _ in range(20):
        chosen = dice.choice(len(pages), len(pages) // 100, replace=False)
        pages[chosen] = dice.integers(0, 256, (len(chosen), 4096), dtype=np.uint8)
        changed += len(chosen) * 4096
        with store.draft("sandbox/twenty") as draft:
            draft.put("memory", image, split="pages")
            draft.commit()
    written = measure.size_of(repo) - first
    if store.read("sandbox/twenty", "memory") != image.tobytes():
        raise SystemExit("the twentieth step does not read back as it was")
    shutil.rmtree(repo)
    return written / 1e6, changed / 1e6


def _child(
    step: list[str], repo: Path, env: dict[str, str], reads: Path | None = None
) -> tuple[Cost, float]:
    report = repo.with_suffix(".json")
    command = " ".join([*_CHILD, *step, ">", str(report)])
    cost = measure.run(command, repo, env=env, reads=reads)
    return cost, float(json.loads(report.read_text())["wall"])


def _check_same(found: Path, wanted: Path) -> None:
    done = subprocess.run(
        ["diff", "-rq", found, wanted], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"restored data differs:\n{done.stdout[:500]}")


def table(rows: dict[str, list[Cost]]) -> str:
    lines = ["| wall s / CPU s / MB added | " + " | ".join(STEPS) + " |", "|---" * 5 + "|"]
    for name, costs in rows.items():
        cells = [f"{c.wall:.2f} / {c.cpu:.2f} / {c.added_mb:.1f}" for c in costs[:3]]
        cells.append(f"{costs[3].wall:.2f} / {costs[3].cpu:.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def goals(
    rows: dict[str, list[Cost]], array: tuple[float, float], twenty: tuple[float, float]
) -> list[tuple[str, bool]]:
    ours, borg = rows[_OURS], rows[_BORG]
    return [
        (f"full save {ours[0].wall:.2f} s, at most 2.0", ours[0].wall <= 2.0),
        (f"1% in runs adds {ours[1].added_mb:.1f} MB, at most 7", ours[1].added_mb <= 7),
        (
            f"1% in runs takes {ours[1].wall / borg[1].wall:.2f} of borg's time, at most 0.5",
            ours[1].wall <= borg[1].wall / 2,
        ),
        (f"1% scattered adds {ours[2].added_mb:.1f} MB, at most 7", ours[2].added_mb <= 7),
        (
            f"1% scattered takes {ours[2].wall / borg[2].wall:.2f} of borg's time, at most 0.33",
            ours[2].wall <= borg[2].wall / 3,
        ),
        (f"restore {ours[3].wall:.2f} s, at most 1.4", ours[3].wall <= 1.4),
        (
            f"a raw array of 1 GB answers after {array[0] * 1e3:.0f} ms, at most 50",
            array[0] <= 0.05,
        ),
        (
            f"twenty steps of 1% write {twenty[0]:.0f} MB for {twenty[1]:.0f} MB of changed pages",
            twenty[0] <= 1.05 * twenty[1],
        ),
    ]


def _limit(rows: dict[str, list[Cost]], looking: tuple[float, float]) -> str:
    """How far from what the machine can do at all."""
    ours, copy = rows[_OURS], rows[_COPY]
    times = [
        f"{step} {mine.wall / bare.wall:.1f}"
        for step, mine, bare in zip(STEPS, ours, copy, strict=True)
    ]
    read, hashed = looking
    whole, borg = rows[_WHOLE], rows[_BORG]
    started = ", ".join(f"{STEPS[i]} {whole[i].wall / borg[i].wall:.2f}" for i in (1, 2))
    return (
        f"as whole processes, with an interpreter started for each, of borg's time: {started};"
        " goals are for the library, which a program that saves again and again has loaded\n- "
        f"in times of copying the bytes with `cp`: {', '.join(times)}\n"
        f"- reading the files and doing nothing with them takes {read:.2f} s by as many threads,"
        f" reading and hashing them {hashed:.2f} s: no save that looks at every byte takes less"
    )


def plot(rows: dict[str, list[Cost]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, (times, sizes) = pyplot.subplots(1, 2, figsize=(11, 4))
    width = 0.8 / len(rows)
    for i, (name, costs) in enumerate(rows.items()):
        times.bar([x + i * width for x in range(4)], [c.wall for c in costs], width, label=name)
        sizes.bar([x + i * width for x in range(2)], [c.added_mb for c in costs[1:3]], width)
    times.set_xticks([x + 0.4 for x in range(4)], STEPS)
    times.set_ylabel("seconds (lower is better)")
    times.legend(fontsize=8)
    sizes.set_xticks([x + 0.4 for x in range(2)], STEPS[1:3])
    sizes.set_ylabel("MB added (log scale)")
    sizes.set_yscale("log")
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="where the images are kept between runs")
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as temporary:
        scratch = Path(temporary)
        data = (given.data or scratch / "data").resolve()
        images.make(data)
        peers = tools()
        found: dict[str, list[list[Cost]]] = {tool.name: [] for tool in peers}
        found |= {_WHOLE: [], _OURS: []}
        arrays, lookings = [], []
        for number in range(given.rounds):
            print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
            for tool in peers:
                found[tool.name].append(measure_tool(tool, data, scratch))
            whole, inside = measure_holdfast(data, scratch)
            found[_WHOLE].append(whole)
            found[_OURS].append(inside)
            arrays.append(measure_array(scratch))
            lookings.append(measure_looking(data, scratch))
        twenty = measure_twenty(data, scratch)
    rows = {
        name: [measure.middle([r[i] for r in rounds]) for i in range(4)]
        for name, rounds in found.items()
    }
    array = sorted(arrays)[len(arrays) // 2]
    read, hashed = (statistics.median(found) for found in zip(*lookings, strict=True))
    reached = goals(rows, array, twenty)
    versions = "; ".join(f"{tool.name}: {tool.version}" for tool in peers)
    text = "\n".join(
        [
            f"Medians of {given.rounds} rounds. {measure.machine()}. {versions}.",
            "",
            table(rows),
            "",
            *(f"- {'reached' if ok else '**missed**'}: {what}" for what, ok in reached),
            f"- {_limit(rows, (read, hashed))}",
        ]
    )
    print(text)
    given.out.mkdir(parents=True, exist_ok=True)
    measure.publish(given.out / "store.md", text)
    plot(rows, given.out / "store.svg")
    print(f"written to {given.out}/store.md and store.svg", file=sys.stderr)


if __name__ == "__main__":
    main()
