"""What a family of objects may ask of the pickler that meets one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CellType, CodeType, FunctionType
from typing import Any, Protocol

from holdfast.session.worker.kinds.pairs import Pair, Pairs

# `Any` is what pickle's protocol gives: a reduction is a string or a tuple of 2 to 6 things.
Reduction = Any


class Recorder(Protocol):
    """The pickler of one record, as a family sees it."""

    @property
    def namespace(self) -> dict[str, object]:
        """The session's globals."""

    @property
    def apart(self) -> bool:
        """Whether this is a copy of the session's process: nothing may reach the outside."""

    @property
    def threaded(self) -> bool:
        """Whether other threads of the session run."""

    @property
    def pairs(self) -> Pairs:
        """What has two ends in the session."""

    def plain(self, obj: object) -> Reduction:
        """The object's own way of being pickled; a hole when it has none."""

    def by_value(self, obj: object) -> Reduction:
        """A function or class in its parts; NotImplemented when a module has it by its name."""

    def hole(self, obj: object, reason: str) -> Reduction:
        """A placeholder in the object's place."""

    def missing(self, obj: type) -> Reduction:
        """The stand-in of a class whose library is missing."""

    def note(self, text: str) -> None:
        """Something that the report should say about the record."""

    def unproven(self) -> None:
        """The record cannot be read back in a fork of the process to see whether it can be."""

    def end(self, pair: Pair, side: int) -> None:
        """The record has one end of a pair."""

    def local(self, obj: object) -> None:
        """The object is found again by its name, so records need not share it."""

    def reference(self, obj: object) -> Reduction:
        """The label of a definition; None for what is not defined in the session."""

    def outer(self, obj: type) -> tuple[type, str] | None:
        """The defined class that a class stands in, and the way to it from there."""

    def method(self, obj: FunctionType) -> tuple[type, str] | None:
        """The class whose source makes a function, and its name there."""

    def place(self, code: CodeType) -> tuple[object, ...] | None:
        """Where code stands in source; None for code without source, which is not portable."""

    def enclosed(self, function: FunctionType) -> None:
        """The variables that a function uses of the one around it have names."""

    def contents(self, cell: CellType) -> object:
        """What such a variable holds, or what stands for a secret. Raises ValueError: nothing."""

    def without(self, names: Iterable[object], values: Iterable[object]) -> tuple[object, ...]:
        """Values with names that the pickle may not tell: something else stands for secrets."""

    def defaults(self, function: FunctionType) -> tuple[object, ...] | None:
        """A function's defaults, which the names of its parameters go with, in the same way."""

    def lost(self, source: str) -> tuple[str, ...]:
        """The names of the secrets that this source would have to lose."""

    def buffer(self, address: int, size: int, owner: object) -> str:
        """Keep memory beside the record; the label to find it by."""

    def copied(self, made: Any) -> str:
        """The same for memory that was made for the record, in another place each time."""

    def block(self, array: Any) -> str | None:
        """Keep the values of an array of objects in a record of their own; None: they can change,
        or are secrets."""

    def raw(self, data: bytes) -> None:
        """These bytes are no text."""

    def check_size(self, size: int) -> None:
        """Raise TooLarge before so many bytes are copied, if they are more than allowed."""


Reduce = Callable[[Recorder, Any], Reduction]
