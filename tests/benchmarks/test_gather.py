"""The page that gathers all benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import gather


def test_goals_are_counted_and_nothing_missed_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "store.md").write_text(
        "Medians of 3 rounds. 2 cores, 24 GiB.\n\n| a |\n|---|\n\n"
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
    assert "Medians of 3 rounds. 2 cores, 24 GiB." in text
    assert text.count("![") == 1
    # What was not run is said, and not left out.
    missing = [title for name, title in gather.TITLES.items() if name not in ("store", "session")]
    assert all(f"| {title} | not measured here | |\n" in text for title in missing)


def test_every_benchmark_of_the_makefile_is_gathered(repository: Path) -> None:
    recipe = (repository / "Makefile").read_text()
    run = re.findall(r"benchmarks/(\w+)\.py", recipe)
    assert sorted(run) == sorted([*gather.TITLES, "gather"])
    assert run[-1] == "gather"
