"""Links between the pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    words = (re.sub(r"[^\w\- ]", "", each.lower()) for each in HEADING.findall(page.read_text()))
    return {each.strip().replace(" ", "-") for each in words}


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    seen: set[Path] = set()
    ahead = [index]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = [link.partition("#")[0] for link in LINK.findall(page.read_text("utf-8"))]
        ahead += [(page.parent / link).resolve() for link in links if link and "://" not in link]
        if page == index:
            ahead += (ROOT / "docs" / "decisions").glob("*.md")  # it links to the folder
    missing = [page for page in [*PAGES, *(ROOT / "spec").glob("*.md")] if page not in seen]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text("utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} in {page.name}"
        if anchor:
            assert anchor in anchors(target), f"{link} in {page.name}"
