"""What is typed at the prompt: whether it is whole, and how the next line begins."""

from __future__ import annotations

import pytest

from holdfast.cli.prompt.typing import indentation, is_complete


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("x = 1", True),
        ("", True),
        ("for n in x:", False),
        ("for n in x:\n    pass", False),
        ("for n in x:\n    pass\n", True),
        ("x = (1,\n", False),
        ("x = (1,\n2)", True),
        ("def f(", False),
        ("x = = 1", True),
        ("await thing()", True),
        ("'''abc", False),
        ("@wraps", False),
        ("%log", True),
        ("x = '\0'", True),
    ],
)
def test_whether_what_is_typed_is_complete(text: str, whole: bool) -> None:
    assert is_complete(text) is whole


def test_indentation() -> None:
    assert [indentation(text) for text in ("", "x", "if x:", "if x:\n    y", "  for a in b:")] == [
        "", "", "    ", "    ", "      ",
    ]  # fmt: skip
