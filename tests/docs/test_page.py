"""The runner of documentation itself: a page that promises too much must fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.page import Reader, WrongPageError, blocks, commands, matches


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("a", "a\n"),
        ("a  b", "a b"),
        ("a ... c", "a b c"),
        ("a ... c", "a c"),
        ("a\n...", "a\nb\nc"),
        ("...c", "a\nb c"),
        ("ID\n... head", "ID\nx y  head"),
        ("1a2b3c4d  3 s ago", "5e6f7a8b 1 min ago"),
    ],
)
def test_output_that_matches(expected: str, actual: str) -> None:
    assert matches(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [("a", "b"), ("1a2b3c4d", "1a2b3c4"), ("a", "a b"), ("a ...", "b a c"), ("a.c", "abc")],
)
def test_output_that_does_not(expected: str, actual: str) -> None:
    assert not matches(expected, actual)


def test_blocks_and_commands_are_found_with_their_lines() -> None:
    page = (
        "Text\n\n```console\n$ echo a\na\n$ echo b\n```\n\n- item\n\n  ```python\n  x = 1\n  ```\n"
    )
    console, python = blocks(page)
    assert (console.line, python.line, python.text) == (4, 12, "x = 1\n")
    found = [(each.text, each.expected, each.line) for each in commands(console)]
    assert found == [("echo a", "a\n", 4), ("echo b", "", 6)]


@pytest.mark.parametrize(
    "page",
    [
        "```console\n$ echo a\nb\n```\n",
        "```console\n$ ls /nowhere-at-all\n```\n",
        "```console\n$ unheard-of\n```\n",
        "```console\n$ echo fine\nerror: ...\n```\n",
    ],
)
def test_a_page_that_is_wrong_fails(page: str, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(page)
    with pytest.raises(WrongPageError):
        Reader().read(path)


def test_blocks_share_their_names_and_may_await(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "```python\nx = 1\n```\n"
        "```python\nimport asyncio\nawait asyncio.sleep(0)\nassert x == 1\n```\n"
    )
    Reader().read(path)
