"""A pickle as a tree to look at: its opcodes are followed, and nothing it names is imported or run.

What a pickle would call stays a `Call`, what it would import a `Named`, what stands elsewhere a
`Reference`. Any stream is safe to read: it can be wrong or long, and do no harm.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.model.errors import Corrupt

MOST_STEPS = 50_000  # opcodes; what is longer is not for looking at

# Atoms are themselves; containers are the builtin ones, but a dict is pairs: its keys are nodes.
Node: TypeAlias = object


@dataclass(frozen=True, slots=True)
class Named:
    """Something that a restore would import."""

    module: str
    name: str

    def __str__(self) -> str:
        return (
            self.name if self.module in ("builtins", "__main__") else f"{self.module}.{self.name}"
        )


@dataclass(slots=True)
class Call:
    """Something that a restore would make by calling; `state` is what it would be given then."""

    what: Node
    arguments: Node
    state: Node = None


@dataclass(frozen=True, slots=True)
class Reference:
    """Something that stands elsewhere, by its persistent id."""

    id: Node


@dataclass(slots=True)
class Pairs:
    """A dict."""

    items: list[tuple[Node, Node]] = field(default_factory=list)

    def get(self, key: str) -> Node:
        return next((value for name, value in self.items if name == key), None)


@dataclass(slots=True)
class Members:
    """A set or a frozenset."""

    kind: str
    items: list[Node] = field(default_factory=list)


_MARK = object()


def read(data: bytes) -> Node:
    """The tree of a pickle. Raises Corrupt when it makes no sense or is too long."""
    machine = _Machine()
    steps = 0
    try:
        for opcode, argument, _ in pickletools.genops(data):
            steps += 1
            if steps > MOST_STEPS:
                raise Corrupt("the pickle is too long to look at")
            if opcode.name == "STOP":
                return machine.stack[-1]
            machine.step(opcode.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, UnicodeError) as error:
        raise Corrupt(f"not a pickle: {error}") from None
    raise Corrupt("the pickle has no end")


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_LITERALS = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE"),
        *("BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
_NOTHING = frozenset({"PROTO", "FRAME", "READONLY_BUFFER"})


def _referred(identity: Node) -> Node:
    """What a persistent id means: a dict that lost secrets has the rest of it there."""
    match identity:
        case ("filled", int(), list(entries)):
            return Pairs(list(zip(entries[::2], entries[1::2], strict=False)))
    return Reference(identity)


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Node] = []
        self.memo: dict[int, Node] = {}

    def step(self, name: str, argument: object) -> None:
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name not in _NOTHING:
            _STEPS[name](self, argument)

    def pop(self) -> Node:
        return self.stack.pop()

    def to_mark(self) -> list[Node]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("a mark is missing")
        found = self.stack[at + 1 :]
        del self.stack[at:]
        return found

    def last(self, count: int) -> tuple[Node, ...]:
        found = tuple(self.stack[-count:])
        del self.stack[-count:]
        return found

    def extend(self, items: list[Node]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target += items
        elif isinstance(target, Members):
            target.items += items
        elif isinstance(target, Call):
            target.state = [*target.state, *items] if isinstance(target.state, list) else items

    def update(self, flat: list[Node]) -> None:
        pairs = _pairs(flat)
        target = self.stack[-1]
        if isinstance(target, Pairs):
            target.items += pairs.items
        elif isinstance(target, Call):
            target.state = pairs

    def build(self) -> None:
        state = self.pop()
        target = self.stack[-1]
        if isinstance(target, Call):
            target.state = state

    def call(self) -> None:
        arguments, what = self.pop(), self.pop()
        self.stack.append(Call(what, arguments))

    def name(self) -> None:
        name, module = self.pop(), self.pop()
        self.stack.append(Named(str(module), str(name)))

    def import_(self, argument: object) -> None:
        module, _, name = str(argument).partition(" ")
        self.stack.append(Named(module, name))

    def instance(self, argument: object) -> None:
        self.import_(argument)
        what = self.pop()
        self.stack.append(Call(what, tuple(self.to_mark())))

    def made(self) -> None:
        what, *arguments = self.to_mark()
        self.stack.append(Call(what, tuple(arguments)))

    def made_ex(self) -> None:
        _, arguments, what = self.pop(), self.pop(), self.pop()
        self.stack.append(Call(what, arguments))

    def put(self, argument: object) -> None:
        self.memo[_index(argument)] = self.stack[-1]

    def get(self, argument: object) -> None:
        self.stack.append(self.memo[_index(argument)])


def _pairs(flat: list[Node]) -> Pairs:
    return Pairs(list(zip(flat[::2], flat[1::2], strict=True)))


def _index(argument: object) -> int:
    return int(argument)  # type: ignore[call-overload, no-any-return]  # of any wrong one it raises


_Step: TypeAlias = Callable[[_Machine, object], object]
_STEPS: dict[str, _Step] = {
    "MARK": lambda m, _: m.stack.append(_MARK),
    "POP": lambda m, _: m.pop(),
    "POP_MARK": lambda m, _: m.to_mark(),
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "LIST": lambda m, _: m.stack.append(m.to_mark()),
    "APPEND": lambda m, _: m.extend([m.pop()]),
    "APPENDS": lambda m, _: m.extend(m.to_mark()),
    "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.to_mark())),
    "TUPLE1": lambda m, _: m.stack.append(m.last(1)),
    "TUPLE2": lambda m, _: m.stack.append(m.last(2)),
    "TUPLE3": lambda m, _: m.stack.append(m.last(3)),
    "EMPTY_DICT": lambda m, _: m.stack.append(Pairs()),
    "DICT": lambda m, _: m.stack.append(_pairs(m.to_mark())),
    "SETITEM": lambda m, _: m.update(list(m.last(2))),
    "SETITEMS": lambda m, _: m.update(m.to_mark()),
    "EMPTY_SET": lambda m, _: m.stack.append(Members("set")),
    "ADDITEMS": lambda m, _: m.extend(m.to_mark()),
    "FROZENSET": lambda m, _: m.stack.append(Members("frozenset", m.to_mark())),
    "GLOBAL": lambda m, argument: m.import_(argument),
    "STACK_GLOBAL": lambda m, _: m.name(),
    "EXT1": lambda m, argument: m.stack.append(Named("copyreg", f"extension {argument}")),
    "EXT2": lambda m, argument: m.stack.append(Named("copyreg", f"extension {argument}")),
    "EXT4": lambda m, argument: m.stack.append(Named("copyreg", f"extension {argument}")),
    "REDUCE": lambda m, _: m.call(),
    "NEWOBJ": lambda m, _: m.call(),
    "NEWOBJ_EX": lambda m, _: m.made_ex(),
    "INST": lambda m, argument: m.instance(argument),
    "OBJ": lambda m, _: m.made(),
    "BUILD": lambda m, _: m.build(),
    "PERSID": lambda m, argument: m.stack.append(Reference(argument)),
    "BINPERSID": lambda m, _: m.stack.append(_referred(m.pop())),
    "NEXT_BUFFER": lambda m, _: m.stack.append(Reference("buffer")),
    "GET": lambda m, argument: m.get(argument),
    "BINGET": lambda m, argument: m.get(argument),
    "LONG_BINGET": lambda m, argument: m.get(argument),
    "PUT": lambda m, argument: m.put(argument),
    "BINPUT": lambda m, argument: m.put(argument),
    "LONG_BINPUT": lambda m, argument: m.put(argument),
    "MEMOIZE": lambda m, _: m.memo.__setitem__(len(m.memo), m.stack[-1]),
}
