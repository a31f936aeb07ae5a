"""Structure: JSON-like values as nodes of a tree, so that a small change stores little. Reading.

The format is in the spec, section 6; where values are cut is up to the writer (`trees`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.msgpack import Ext

from holdfast.model.errors import BadInput, Corrupt
from holdfast.store.chunks.chunk import ID_SIZE, Buffer
from holdfast.store.parts.part import split_ids

# Any: a JSON-like value has no narrower type that mypy can follow through recursion.
Value = Any
Node = tuple[str, Value]  # a type and what it says the content is
GetChunk = Callable[[bytes], Buffer]
GatherChunks = Callable[[list[bytes]], Mapping[bytes, Buffer]]

REFERENCE, _BIG_INTEGER, EMBEDDED = 1, 2, 3
_MAX_DEPTH = 200
_MAX_NODES = 8 * _MAX_DEPTH  # one below the other

_SCALARS = frozenset((str, int, float, bool, bytes, type(None)))
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


def read_value(root: bytes, get: GetChunk, gather: GatherChunks | None = None) -> Value:
    """The inverse of `write_value`; raises Corrupt. `gather` gets many chunks at once."""
    return _Reader(gather or (lambda chunks: {each: get(each) for each in chunks})).value(root)


def named_by(node: Buffer) -> tuple[list[bytes], list[bytes]]:
    """The nodes and the raw pieces that a node refers to, in order; raises Corrupt."""
    return _named(*_open(node))


def _named(kind: str, content: Value) -> tuple[list[bytes], list[bytes]]:
    if kind in ("M", "L"):
        below, raw = _named(*content.tail) if content.tail else ([], [])
        return split_ids(content.ids) + below, raw
    if kind in ("s", "b"):
        return [], split_ids(content)
    nodes: list[bytes] = []
    pieces: list[bytes] = []
    if kind in ("m", "l"):
        for item in content:
            if type(item) is _Reference:
                nodes.append(item.id)
            elif type(item) is _Embedded:
                below, raw = _named(*item.node)
                nodes += below
                pieces += raw
    return nodes, pieces


def check_value(value: Value) -> Value:
    """The value itself when msgpack can hold it as it is, a converted copy when it has integers
    beyond 64 bits; raises BadInput for anything that is not JSON-like."""
    return _plain(value, "$", 0)


def decode_value(raw: Buffer) -> Value:
    """A value from its plain encoding, which this process made itself."""
    return _decode(raw)


def _plain(value: Value, path: str, depth: int) -> Value:
    kind = type(value)
    if kind in _SCALARS:
        if kind is int and not _INT_MIN <= value <= _INT_MAX:
            size = value.bit_length() // 8 + 1
            return Ext(_BIG_INTEGER, value.to_bytes(size, "big", signed=True))
        if kind is str and not value.isascii():
            _check_text(value, path)
        return value
    if depth > _MAX_DEPTH:
        raise BadInput(f"the value is nested more than {_MAX_DEPTH} deep at {path[:80]}")
    if kind is dict:
        items = {}
        for key, item in value.items():
            if type(key) is not str:
                raise BadInput(f"a key at {path} is {type(key).__name__}, not a text")
            _check_text(key, path)
            items[key] = _plain(item, f"{path}.{key}", depth + 1)
        return items
    if kind is list:
        return [_plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise BadInput(f"a value of type {kind.__name__} at {path} cannot be stored as structure")


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"a text at {path} holds half a character (a lone surrogate)") from None


class _Reference:
    __slots__ = ("id",)

    def __init__(self, chunk: bytes) -> None:
        self.id = chunk


class _Joint(NamedTuple):
    ids: bytes
    tail: Node | None


class _Embedded:
    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node


def _extension(code: int, data: memoryview) -> object:
    if code == REFERENCE and len(data) == ID_SIZE:
        return _Reference(bytes(data))
    if code == _BIG_INTEGER:
        return int.from_bytes(data, "big", signed=True)
    if code == EMBEDDED:
        return _Embedded(_open(data))
    raise ValueError(f"unknown extension {code}")


_decode = msgspec.msgpack.Decoder(ext_hook=_extension).decode


def _open(data: Buffer) -> Node:
    """A node's type and content, which is what the type says; raises Corrupt."""
    tail: Value = None
    try:
        kind, content, *more = _decode(data)
        if more:
            (tail,) = more
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise Corrupt(f"a structure node cannot be read: {error}") from None
    match kind, content:
        case "v", _:
            good = not isinstance(content, _Reference | _Embedded)
        case "m", list():
            good = not len(content) % 2 and all(type(key) is str for key in content[::2])
        case "l", list():
            good = True
        case (("M" | "L"), bytes()):
            good = not len(content) % ID_SIZE and (tail is None or isinstance(tail, _Embedded))
            content, tail = _Joint(content, tail.node if good and tail is not None else None), None
        case (("s" | "b"), bytes()):
            good = not len(content) % ID_SIZE
        case _:
            good = False
    if not good or tail is not None:
        raise Corrupt(f"a structure node of type {kind!r} makes no sense")
    return kind, content


class _Reader:
    """Reads nodes level by level, each level at once, then puts them together without recursion:
    a value may be nested deeper than Python's stack allows."""

    def __init__(self, gather: GatherChunks) -> None:
        self._gather = gather
        self._data: dict[bytes, Buffer] = {}
        self._nodes: dict[bytes, Node] = {}

    def value(self, root: bytes) -> Value:
        self._load(root)
        pending = [self._node(*self._take(root))]
        result: Value = None
        while pending:
            try:
                wanted = pending[-1].send(result)
            except StopIteration as done:
                result = done.value
                pending.pop()
                continue
            if len(pending) > _MAX_NODES:
                raise Corrupt("a structure is nested deeper than any that is written")
            pending.append(self._node(*wanted))
            result = None
        return result

    def _load(self, root: bytes) -> None:
        """Get everything that the value is made of."""
        level = [root]
        pieces: list[bytes] = []
        for _ in range(_MAX_NODES):
            if not level:
                break
            self._data.update(self._gather(level))
            below: dict[bytes, None] = {}
            for chunk in level:
                node = self._nodes[chunk] = _open(self._data[chunk])
                named, raw = _named(*node)
                below.update(dict.fromkeys(named))
                pieces += raw
            level = [chunk for chunk in below if chunk not in self._nodes]
        else:
            raise Corrupt("a structure is nested deeper than any that is written")
        if pieces:
            self._data.update(self._gather(list(dict.fromkeys(pieces))))

    def _take(self, chunk: bytes) -> Node:
        """A node for this place alone: what stands in two places becomes two values."""
        node = self._nodes.pop(chunk, None)
        return _open(self._data[chunk]) if node is None else node

    def _node(self, kind: str, content: Value) -> Generator[Node, Value, Value]:
        """Yields the nodes it needs, is sent their values, and returns its own."""
        if kind == "v":
            return content
        if kind in ("m", "l"):
            items = content if kind == "l" else content[1::2]
            for at, item in enumerate(items):
                if type(item) is _Reference:
                    node = self._take(item.id)
                elif type(item) is _Embedded:
                    node = item.node
                else:
                    continue
                items[at] = node[1] if node[0] == "v" else (yield node)
            return items if kind == "l" else dict(zip(content[::2], items, strict=True))
        if kind in ("M", "L"):
            merged: Value = {} if kind == "M" else []
            nodes = [self._take(part) for part in split_ids(content.ids)]
            for node in [*nodes, content.tail] if content.tail else nodes:
                run = yield node
                if type(run) is not type(merged):
                    raise Corrupt("the runs of a structure are of different types")
                merged.update(run) if kind == "M" else merged.extend(run)
            return merged
        data = b"".join(bytes(self._data[piece]) for piece in split_ids(content))
        try:
            return data if kind == "b" else data.decode()
        except UnicodeDecodeError:
            raise Corrupt("a long text is not UTF-8") from None
