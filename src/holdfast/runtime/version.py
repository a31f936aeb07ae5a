"""Versions as engines print them, compared as numbers."""

from __future__ import annotations

import re

Version = tuple[int, ...]

_PATTERNS = {
    "runc": re.compile(r"^runc version (\S+)", re.MULTILINE),
    "runsc": re.compile(r"^runsc version (\S+)", re.MULTILINE),
    "criu": re.compile(r"^Version: (\S+)", re.MULTILINE),
    "bwrap": re.compile(r"^bubblewrap (\S+)", re.MULTILINE),
}


def printed(engine: str, output: str) -> str | None:
    """The version in what `ENGINE --version` printed, or None if it printed something else."""
    found = _PATTERNS[engine].search(output)
    return found.group(1) if found else None


def numbers(text: str) -> Version:
    """The leading numbers of a version: `4.2.1-rc1` is (4, 2, 1), `6.18.5+deb` is (6, 18, 5)."""
    found = re.match(r"[vV]?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()


def at_least(text: str, least: Version) -> bool:
    """Whether a version is `least` or newer; what cannot be read counts as older."""
    have = numbers(text)
    length = max(len(have), len(least))
    return bool(have) and _padded(have, length) >= _padded(least, length)


def _padded(version: Version, length: int) -> Version:
    return version + (0,) * (length - len(version))
