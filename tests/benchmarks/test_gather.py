"""The page that gathers all benchmarks."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks import gather


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


def test_every_benchmark_of_the_makefile_is_gathered(repository: Path) -> None:
    recipe = (repository / "Makefile").read_text()
    run = re.findall(r"benchmarks/(\w+)\.py", recipe)
    assert sorted(run) == sorted([*gather.TITLES, "gather"])
    assert run[-1] == "gather"


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
