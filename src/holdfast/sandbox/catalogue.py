"""The catalogue: the roots that a server has for its sandboxes, by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.model.errors import NotFound
from holdfast.sandbox import images, roots
from holdfast.sandbox.roots import Root


class Catalogue:
    """The selection of the host, and images with names. Made once, blocking."""

    def __init__(self, folder: Path, sources: Sequence[tuple[str, Path]] = ()) -> None:
        self._tools = folder / "root"
        self.default: Root = roots.default(self._tools)
        self._named: dict[str, Root] = {}
        for name, source in sources:
            lower, digest = images.prepare(source, folder / "images-of-roots" / name)
            self._named[name] = roots.foreign(name, lower, self._tools, digest)

    def find(self, name: str | None) -> Root:
        """Raises NotFound: a checkpoint may name an image that this server does not have."""
        if name in (None, "default"):
            return self.default
        found = self._named.get(name or "")
        if found is None:
            raise NotFound(
                f"this server has no image {name!r:.100}", hint="serve --image NAME=PATH"
            )
        return found
