"""What a record may refer to instead of containing it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from holdfast.model.secrets import USUAL, Rule
from holdfast.session.worker.blocks import Block, Blocks, Looked, place
from holdfast.session.worker.codes import CodeIndex
from holdfast.session.worker.innocent import Innocent
from holdfast.session.worker.kinds.contract import Reduce
from holdfast.session.worker.kinds.memory import address
from holdfast.session.worker.kinds.pairs import Pairs
from holdfast.session.worker.labels import Labels
from holdfast.session.worker.memory.image import Image
from holdfast.session.worker.memory.tracker import Place, Tracker, known_as
from holdfast.session.worker.snapshots import Snapshot, attributes_of, home


def memory(owner: object) -> memoryview:
    """The bytes of what owns a buffer, in one piece and not copied."""
    return pickle.PickleBuffer(owner).raw()  # type: ignore[arg-type]  # it has memory


@dataclass(slots=True)
class Surroundings:
    """The session as its records see it, and the memory that they keep beside them."""

    namespace: dict[str, object]
    codes: CodeIndex
    labels: Mapping[int, str]  # id of a class or function -> the label of its definition
    objects: Mapping[str, object]  # the other way round
    kept: Labels
    limit: int | None = None
    ran: bool = False  # whether code of the user's has, while records were made
    met: bool = False  # whether there was memory in records, which may be of this moment
    apart: bool = False  # whether this is a copy of the session's process
    threads: int = 0  # of the session, where this copy of its process does not have them
    known: frozenset[str] = frozenset()  # secrets, not to be told in reasons either
    snapshots: Mapping[int, Mapping[str, Snapshot]] = field(default_factory=dict)  # of classes
    rule: Rule = USUAL
    spared: dict[int, object] = field(default_factory=dict)  # texts by id that are kept
    innocent: Innocent = field(default_factory=Innocent)
    families: dict[type, Reduce | None] = field(default_factory=dict)
    held: frozenset[str] = frozenset()  # types that a copy of the process stood still at
    # The id of the type that is being pickled, for whoever finds that it stands still.
    at: memoryview = field(default_factory=lambda: memoryview(bytearray(8)).cast("Q"))
    pairs: Pairs = field(default_factory=Pairs)
    tracker: Tracker = field(default_factory=Tracker.off)
    buffers: dict[str, object] = field(default_factory=dict)  # label -> what owns the memory
    places: dict[str, Place] = field(default_factory=dict)  # label -> where that is
    blocks: Blocks = field(default_factory=Blocks)
    looked: Looked = field(default_factory=dict)
    values: dict[str, Block] = field(default_factory=dict)  # label -> what has its own record
    encoded: dict[str, bytes] = field(default_factory=dict)  # label -> that, if the host lacks it

    def buffer(self, address: int, size: int, owner: object) -> str:
        """The label of memory that is kept beside the records."""
        label = self.kept.memory(address, size)
        self.buffers[label] = owner
        self.places[label] = address, size
        self.tracker.watch([(address, size)])
        return label

    def copied(self, made: Any) -> str:
        """The label of memory that was made for a record. It lies elsewhere each time, so its
        content says what it is; there is nothing to be watched."""
        view = memory(made)
        label = self.kept.content(view)
        self.buffers[label] = made
        self.places[label] = address(view), view.nbytes
        return label

    def block(self, array: Any) -> str | None:
        """The label of an array's values, which are kept in a record of their own."""
        where = place(array)
        if where not in self.looked:
            self.looked[where] = array, self.blocks.of(array)
        _, found = self.looked[where]
        if found.label not in self.values:
            if self.tracker.base not in found.sent:
                data = found.data(self.kept)
                if data is None:
                    return None
                self.encoded[found.label] = data
            self.values[found.label] = found
            self.places[found.label] = 0, found.size
        return found.label

    def image(self, label: str) -> Image:
        """What the host needs of a buffer."""
        owner, place = self.buffers[label], self.places[label]
        # An array that a restore makes begins 16 bytes after the beginning of a page, because
        # that is what malloc needs; other buffers begin with one.
        skew = 0 if isinstance(owner, memoryview) else 16
        runs = self.tracker.changed(place, known_as(label, skew))
        base = self.tracker.base if runs is not None else 0
        whole = [(0, place[1])]
        runs = whole if runs is None else runs
        return Image(memory(owner), place[0], skew, base, runs, self.tracker.looks(place))

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

    def method(self, obj: FunctionType) -> tuple[type, str] | None:
        """The class whose source makes this function, if it still has it, and its name there."""
        return home(obj, self.objects.values(), self.snapshots)
