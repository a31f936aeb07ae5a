"""The page that gathers all benchmarks."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import container, gather, load, sandbox
from holdfast.runtime import engines


def test_goals_are_counted_and_nothing_missed_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "store.md").write_text(
        "Words.\n\nMedians of 3 rounds. 2 cores, 24 GiB,\nload 1.3.\n\n| a |\n|---|\n| 7 |\n\n"
        "- reached: one thing 1.30 s, at most 2.0\n- **missed**: another 3 s, at most 2\n"
    )
    (tmp_path / "store.svg").write_text("<svg/>")
    (tmp_path / "session.md").write_text("- reached: all\n")
    found = [each for name in gather.TITLES if (each := gather.read(tmp_path, name))]
    assert [each.name for each in found] == ["store", "session"]
    text = gather.page(found, "benchmarks")
    assert re.search(r"\| \[The store.*\]\(benchmarks/store.md\) \| 1 \| 1 \|", text)
    assert re.search(r"\| \[Sessions.*\]\(benchmarks/session.md\) \| 1 \| 0 \|", text)
    assert "- **missed**: another 3 s, at most 2" in text
    assert "\nMedians of 3 rounds. 2 cores, 24 GiB, load 1.3.\n" in text
    assert "\n\n| a |\n|---|\n| 7 |\n\n" in text
    assert text.count("![") == 1
    # What was not run is said, and not left out.
    missing = [title for name, title in gather.TITLES.items() if name not in ("store", "session")]
    assert all(f"| {title} | not measured here | |\n" in text for title in missing)


WRITTEN = {  # what each says of the machine, with the engines it runs, and figures of nobody
    "sandbox": (lambda: sandbox.introduction(["gvisor", "runc"], 1, 1), ("runsc", "runc", "criu")),
    "container": (
        lambda: container.report(
            [container.Call("state", 1, 1, 1)],
            {name: [1.0] for name in ("criu", "criu, whole command", "holdfast")},
            {name: [1.0] for name in ("eager", "lazy", "eager, bare", "lazy, bare")},
            200,
        ),
        ("runc", "criu"),
    ),
    "load": (lambda: load.introduction(["process", "gvisor", "runc"], 5, 10, 10), ("runsc",)),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_page_says_the_versions_of_the_engines_it_measured(name: str, tmp_path: Path) -> None:
    """As they print them, in the words that the gathered page takes over."""
    write, used = WRITTEN[name]
    (tmp_path / f"{name}.md").write_text(write())
    page = gather.read(tmp_path, name)
    assert page is not None
    for engine in used:
        found = engines.find(engine)
        assert found is not None, f"there is no {engine}: make setup-test, as root"
        command = [str(found.program), "--version"]
        first = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        version = first.splitlines()[0].split()[-1]
        assert re.search(rf" cores, .*, {engine} {re.escape(version)}[,.]", page.how), page.how


def test_every_benchmark_of_the_makefile_is_gathered(repository: Path) -> None:
    recipe = (repository / "Makefile").read_text()
    run = re.findall(r"benchmarks/(\w+)\.py", recipe)
    assert sorted(run) == sorted([*gather.TITLES, "gather"])
    assert run[-1] == "gather"
    unasked = subprocess.run(
        ["make", "--dry-run", "bench"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout
    left = {name for name in gather.TITLES if f"benchmarks/{name}.py" not in unasked}
    assert left == gather.ASKED.keys()  # what takes too long for every run


def test_a_page_that_is_missing_is_named_with_what_writes_it(
    repository: Path, tmp_path: Path
) -> None:
    """The program itself, on the pages that there are."""
    pages = tmp_path / "benchmarks"
    shutil.copytree(repository / "docs" / "benchmarks", pages)
    (pages / "store.md").unlink()
    command = [sys.executable, str(repository / "benchmarks" / "gather.py"), "--out", str(pages)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert f"of {len(gather.TITLES)} benchmarks gathered in {tmp_path / 'benchmarks.md'}" in said
    assert f"missing: {pages / 'store.md'}, which benchmarks/store.py --out {pages} writes" in said
    text = (tmp_path / "benchmarks.md").read_text()
    assert f"| {gather.TITLES['store']} | not measured here | |" in text
    for name in ("state", "sandbox", "container"):
        assert f"](benchmarks/{name}.md)" in text
        assert f"![{gather.TITLES[name]}](benchmarks/{name}.svg)" in text


def test_the_gathered_page_is_that_of_the_pages(repository: Path) -> None:
    """Whoever commits a page gathers anew."""
    docs = repository / "docs"
    names = [each for name in gather.TITLES if (each := gather.read(docs / "benchmarks", name))]
    same = (docs / "benchmarks.md").read_text() == gather.page(names, "benchmarks")
    assert same, "run benchmarks/gather.py --out docs/benchmarks, and commit what it writes"
