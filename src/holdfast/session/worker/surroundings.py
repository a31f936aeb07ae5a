"""What a record may refer to instead of containing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.session.worker.codes import CodeIndex
from holdfast.session.worker.definitions import attributes_of
from holdfast.session.worker.kinds.contract import Reduce
from holdfast.session.worker.labels import Labels


@dataclass(slots=True)
class Surroundings:
    """The session as its records see it, and the memory that they keep beside them."""

    namespace: dict[str, object]
    codes: CodeIndex
    labels: Mapping[int, str]  # id of a class or function -> the label of its definition
    objects: Mapping[str, object]  # the other way round
    kept: Labels
    limit: int | None = None
    apart: bool = False  # whether this is a copy of the session's process
    known: frozenset[str] = frozenset()  # secrets, not to be told in reasons either
    families: dict[type, Reduce | None] = field(default_factory=dict)
    buffers: dict[str, object] = field(default_factory=dict)  # label -> what owns the memory

    def buffer(self, address: int, size: int, owner: object) -> str:
        """The label of memory that is kept beside the records."""
        label = self.kept.memory(address, size)
        self.buffers[label] = owner
        return label

    def outer(self, obj: type) -> tuple[type, str] | None:
        """The defined class that a class stands in, and the way to it from there."""
        first, _, path = obj.__qualname__.partition(".")
        if not path or "<locals>" in path:
            return None
        for made in self.objects.values():
            if isinstance(made, type) and made.__name__ == first:
                found: object = made
                for name in path.split("."):
                    found = attributes_of(found).get(name)
                if found is obj:
                    return made, path
        return None
