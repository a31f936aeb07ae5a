"""Labels that shared objects and memory keep from one checkpoint to the next.

A label means something only inside a checkpoint. That it stays the same while its object lives
keeps records the same; an object that took over the address of another may take its label, too.
"""

from __future__ import annotations

import os

import msgspec

_CONTENT = "c"

Known = tuple[
    dict[int, str], dict[tuple[int, int], str], dict[int, str], dict[tuple[int, int], str]
]


class LabelState(msgspec.Struct, array_like=True):
    """Labels as they travel between two processes with the same addresses."""

    objects: list[tuple[int, str]]
    memory: list[tuple[int, int, str]]
    count: int


class Labels:
    """Gives out labels, and knows those of the last capture."""

    def __init__(self) -> None:
        self._objects: dict[int, str] = {}
        self._memory: dict[tuple[int, int], str] = {}
        self._last_objects: dict[int, str] = {}
        self._last_memory: dict[tuple[int, int], str] = {}
        self._count = 0
        # Nobody can know it, so nobody can make two contents that would get one label.
        self._seed = int.from_bytes(os.urandom(8), "big")

    def begin(self) -> None:
        """A new capture: what it does not use is forgotten afterwards."""
        self._last_objects, self._objects = self._objects, {}
        self._last_memory, self._memory = self._memory, {}

    def back(self) -> None:
        """Another process makes the capture: this one still has the labels of the last."""
        self._objects, self._memory = self._last_objects, self._last_memory

    def shared(self, identity: int) -> str:
        """The label of the object with this id."""
        label = self._objects.get(identity)
        if label is None:
            label = self._last_objects.get(identity) or self._new("s")
            self._objects[identity] = label
        return label

    def memory(self, address: int, size: int) -> str:
        """The label of the memory at this address."""
        label = self._memory.get((address, size))
        if label is None:
            label = self._last_memory.get((address, size)) or self._new("b")
            self._memory[address, size] = label
        return label

    def known(self, address: int, size: int) -> str | None:
        """The label that the memory at this address had in the last capture."""
        return self._memory.get((address, size))

    def content(self, view: memoryview | bytes) -> str:
        """The label of what lies elsewhere each time: by the bytes in it."""
        from xxhash import xxh3_128_hexdigest

        return _CONTENT + xxh3_128_hexdigest(view, self._seed)

    def adopt_object(self, identity: int, label: str) -> None:
        """An object that a restore has brought back keeps its label."""
        if label.startswith(_CONTENT):
            return  # it is that of the bytes, not of the object that was read from them
        self._objects[identity] = label
        self._seen(label)

    def adopt_memory(self, address: int, size: int, label: str) -> None:
        if label.startswith(_CONTENT):
            return  # several may have come of it, and what is in each may change from now on
        self._memory[address, size] = label
        self._seen(label)

    def state(self) -> LabelState:
        """All labels of the last capture."""
        objects = list(self._objects.items())
        memory = [(address, size, label) for (address, size), label in self._memory.items()]
        return LabelState(objects, memory, self._count)

    def take(self, state: LabelState) -> None:
        """The labels of a capture that a copy of this process made: addresses are the same."""
        self._objects = dict(state.objects)
        self._memory = {(address, size): label for address, size, label in state.memory}
        self._count = max(self._count, state.count)

    def clear(self) -> None:
        """Forget everything, before a restore."""
        self._objects, self._memory = {}, {}

    def known_now(self) -> Known:
        """All that is known, for `know_again`."""
        return self._objects, self._memory, self._last_objects, self._last_memory

    def know_again(self, known: Known) -> None:
        """Know what was known before a restore that failed; no label of that is given out again."""
        self._objects, self._memory, self._last_objects, self._last_memory = known

    def _new(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def _seen(self, label: str) -> None:
        self._count = max(self._count, int(label[1:]) if label[1:].isdigit() else 0)
