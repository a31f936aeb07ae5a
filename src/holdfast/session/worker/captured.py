"""What a capture made, ready to be handed to the host."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.session import layout
from holdfast.session.worker.blocks import Sent
from holdfast.session.worker.memory.image import Image
from holdfast.session.worker.memory.tracker import known_as
from holdfast.session.worker.units import shared_part


class Captured(NamedTuple):
    """A capture, ready to be handed to the host."""

    parts: dict[str, bytes]
    memory: dict[str, Image]
    serialization_method: str
    blocks: list[Sent]
    kept: dict[str, int]  # parts that the host has, and in which capture

    @property
    def size(self) -> int:
        """Bytes of all that it holds."""
        whole = sum(image.view.nbytes for image in self.memory.values())
        kept = sum(each.size for each in self.blocks if shared_part(each.label) in self.kept)
        return sum(map(len, self.parts.values())) + whole + kept

    @property
    def needed(self) -> int:
        """Bytes of memory that the host does not have yet."""
        return sum(image.needed for image in self.memory.values())

    @property
    def weight(self) -> int:
        """Bytes that are to be handed over."""
        return sum(map(len, self.parts.values())) + self.needed

    def places(self) -> list[tuple[int, int, str]]:
        """Its memory: address, size, and what the tracker calls it."""
        return [
            (
                image.address,
                image.view.nbytes,
                known_as(name.removeprefix(layout.BUFFERS), image.skew),
            )
            for name, image in self.memory.items()
        ]
