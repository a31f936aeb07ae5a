"""Comparing files by their fingerprints: what was frozen has to be there. Pure."""

from __future__ import annotations

from holdfast.view.files import Layer


def compared(before: Layer, after: Layer) -> list[str]:
    """What is gone, and what is not what it was; nothing is said of what is there besides."""
    lost = [f"{path} did not come back" for path in before.digests if path not in after.digests]
    changed = [
        f"{path} is not what it was"
        for path, digest in before.digests.items()
        if after.digests.get(path, digest) != digest
    ]
    return lost + changed
