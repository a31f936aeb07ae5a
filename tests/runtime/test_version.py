from __future__ import annotations

import pytest

from holdfast.runtime.version import at_least, numbers, printed


@pytest.mark.parametrize(
    ("engine", "output", "version"),
    [
        ("runc", "runc version 1.1.5+ds1\ncommit: x\nspec: 1.0.2-dev\n", "1.1.5+ds1"),
        ("runsc", "runsc version 0.0~20240729.0\nspec: 1.0.2-dev\n", "0.0~20240729.0"),
        ("runsc", "runsc version release-20250820.0\nspec: 1.1.0\n", "release-20250820.0"),
        ("criu", "Version: 4.2.1\nGitID: v4.2.1\n", "4.2.1"),
        ("bwrap", "bubblewrap 0.8.0\n", "0.8.0"),
        ("criu", "usage: something else entirely\n", None),
    ],
)
def test_the_version_is_read_from_what_the_engine_prints(
    engine: str, output: str, version: str | None
) -> None:
    assert printed(engine, output) == version


@pytest.mark.parametrize(
    ("text", "least", "expected"),
    [
        ("4.2.1", (4, 2, 1), True),
        ("4.10", (4, 2, 1), True),
        ("4.2", (4, 2, 0), True),
        ("4.2", (4, 2, 1), False),
        ("3.17.1", (4, 2, 1), False),
        ("6.18.5-cloud+deb13", (6, 7), True),
        ("unknown", (0,), False),
    ],
)
def test_versions_are_compared_as_numbers(
    text: str, least: tuple[int, ...], expected: bool
) -> None:
    assert at_least(text, least) is expected


def test_only_the_leading_numbers_count() -> None:
    assert numbers("v4.2.1-rc1") == (4, 2, 1)
    assert numbers("release-20250820") == ()
