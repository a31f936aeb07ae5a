"""Variables of a session's checkpoint as a person would like to see them. Nothing is unpickled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.model.errors import Corrupt
from holdfast.protocol.values import decode_plain
from holdfast.session import layout
from holdfast.view import arrays, inert
from holdfast.view.inert import Call, Members, Named, Node, Pairs, Reference

LONGEST = 400  # characters of a value
ITEMS = 24  # of a container
DEPTH = 5
_ARRAYS = "holdfast.session.worker.kinds.arrays"
_REBUILD = "holdfast.session.worker.rebuild"

# Modules whose objects are told by what they are made of; so are the session's own classes.
_TELLING = frozenset({"builtins", "__main__", "collections", "datetime", "decimal", "fractions"})
_TELLING |= {"pathlib", "types", "uuid"}

# The first bytes of a buffer by its label; empty when there is none.
Memory = Callable[[str], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """One value in words; of an array also its figures."""

    type_name: str
    text: str
    array: arrays.Summary | None = None


class Previews:
    """Shows the values of records, which may refer to each other and to memory."""

    def __init__(
        self,
        records: Mapping[str, layout.Record],
        definitions: Mapping[str, str],
        memory: Memory,
    ) -> None:
        self._records = records  # by member
        self._definitions = definitions  # names by label
        self._memory = memory

    def of(self, member: str) -> Preview | None:
        """The value of a member; None when it cannot be looked at."""
        record = self._records.get(member)
        if record is None:
            return None
        if record.tier in ("placeholder", "secret", "source"):
            return Preview(type_name=record.type_name or record.tier, text=record.reason)
        try:
            node = self._node(record, member)
        except (Corrupt, ValueError, RecursionError):
            return Preview(type_name=record.type_name, text="")
        node = self._followed(node)
        array = self._array(node)
        text = _described(array) if array else _cut(self._text(node, 0))
        return Preview(type_name=self._type(node), text=text, array=array)

    def _node(self, record: layout.Record, member: str) -> Node:
        data = bytes(record.data)
        if record.tier == "json":
            return _nodes(json.loads(data))
        if record.tier == "msgpack":
            return _nodes(decode_plain(data))
        values = inert.read(data)
        if not isinstance(values, tuple | list) or len(values) < len(record.members):
            raise Corrupt("a record holds other values than it says")
        if member.startswith(layout.SEGMENT):
            return _segment(values[0] if len(values) == 1 else values, record.type_name)
        return values[record.members.index(member)]

    def _followed(self, node: Node) -> Node:
        """What a reference leads to, as far as that is here."""
        for _ in range(DEPTH):
            label = _label(node)
            if label is None:
                return node
            for kind in (layout.OBJECT, layout.SEGMENT):
                record = self._records.get(kind + label)
                if record is not None and record.tier == "cloudpickle":
                    try:
                        node = self._node(record, kind + label)
                    except Corrupt:
                        return node
                    break
            else:
                return node
        return node

    def _type(self, node: Node) -> str:
        match node:
            case Call(what=what):
                if self._array(node) is not None:
                    return "numpy.ndarray" if _called(node) != "scalar" else "numpy scalar"
                return self._name(what)
            case Pairs():
                return "dict"
            case Members(kind=kind):
                return kind
            case Named():
                return "type"
            case Reference():
                return "object"
        return type(node).__name__

    def _name(self, what: Node) -> str:
        if isinstance(what, Call):
            arguments = what.arguments
            if _is(what.what, _REBUILD, "definition") and isinstance(arguments, tuple):
                return self._definitions.get(str(arguments[0]), "a definition")
            return self._name(what.what)
        return str(what) if isinstance(what, Named) else "object"

    def _text(self, node: Node, depth: int) -> str:
        node = self._followed(node) if depth < DEPTH else node
        if depth >= DEPTH:
            return "…"
        match node:
            case Pairs(items=items):
                return _joined(
                    "{",
                    [
                        f"{self._text(key, depth + 1)}: {self._text(value, depth + 1)}"
                        for key, value in items[:ITEMS]
                    ],
                    len(items),
                    "}",
                )
            case list():
                return self._sequence("[", node, "]", depth)
            case tuple():
                return self._sequence("(", list(node), ",)" if len(node) == 1 else ")", depth)
            case Members(items=items):
                return self._sequence("{", items, "}", depth)
            case Call():
                return self._called(node, depth)
            case Named() | Reference():
                return str(node) if isinstance(node, Named) else "…"
        return repr(node)

    def _sequence(self, start: str, items: list[Node], end: str, depth: int) -> str:
        told = [self._text(each, depth + 1) for each in items[:ITEMS]]
        return _joined(start, told, len(items), end)

    def _called(self, node: Call, depth: int) -> str:
        array = self._array(node)
        if array is not None:
            return _described(array)
        name = self._name(node.what)
        if isinstance(node.what, Named) and node.what.module.partition(".")[0] not in _TELLING:
            return f"{name}(…)"  # how a library makes its objects says little
        state = node.state
        if isinstance(state, Pairs):
            told = [f"{k}={self._text(v, depth + 1)}" for k, v in state.items[:ITEMS]]
            return _joined(f"{name}(", told, len(state.items), ")")
        arguments = list(node.arguments) if isinstance(node.arguments, tuple | list) else []
        return self._sequence(f"{name}(", arguments, ")", depth)

    # -- arrays

    def _array(self, node: Node) -> arrays.Summary | None:
        if not isinstance(node, Call):
            return None
        given = node.arguments if isinstance(node.arguments, tuple) else ()
        match _called(node), given:
            case "array", (memory, tuple() as shape, dtype, _):
                label = _argument(memory)
                return _summary(self._memory(label), dtype, shape) if label else None
            case "owned", (bytes() as data, tuple() as shape, dtype, _):
                return _summary(data, dtype, shape)
            case "view", (root, int() as offset, tuple() as shape, tuple() as strides, dtype, _):
                return self._view(self._followed(root), offset, shape, strides, dtype)
            case "_reconstruct", _:
                state = node.state
                if isinstance(state, tuple) and len(state) == 5 and isinstance(state[4], bytes):
                    shape = state[1] if isinstance(state[1], tuple) else ()
                    return _summary(state[4], state[2], shape)
            case "scalar", (dtype, bytes() as data):
                return _summary(data, dtype, ())
        return None

    def _view(
        self, root: Node, offset: int, shape: Node, strides: Node, dtype: Node
    ) -> arrays.Summary | None:
        data = b""
        if isinstance(root, bytes):
            data = root
        elif isinstance(root, Call) and isinstance(root.arguments, tuple):
            if _called(root) == "array":
                data = self._memory(_argument(root.arguments[0]) or "")
            elif _called(root) == "owned" and isinstance(root.arguments[0], bytes):
                data = root.arguments[0]
            elif _called(root) == "_reconstruct" and isinstance(root.state, tuple):
                data = root.state[-1] if isinstance(root.state[-1], bytes) else b""
        sizes, steps = _numbers(shape), _numbers(strides)
        if sizes is None or steps is None:
            return None
        return arrays.strided(data, _dtype(dtype), offset, sizes, steps)


def _summary(data: bytes, dtype: Node, shape: Node) -> arrays.Summary | None:
    sizes = _numbers(shape)
    return None if sizes is None else arrays.summarise(data, _dtype(dtype), sizes)


def _described(array: arrays.Summary) -> str:
    shape = " x ".join(map(str, array.shape))
    if not array.shape and len(array.series) == 1:
        return f"{array.series[0]:g} ({array.dtype})"
    return f"{shape or 'scalar'} {array.dtype}"


def _called(node: Call) -> str:
    """The name of a builder of arrays, or nothing."""
    what = node.what
    if not isinstance(what, Named):
        return ""
    ours = what.module == _ARRAYS and what.name in ("array", "owned", "view")
    numpys = what.module.startswith("numpy") and what.name in ("_reconstruct", "scalar")
    return what.name if ours or numpys else ""


def _dtype(node: Node) -> str:
    """`<f8`, out of what a dtype is pickled as."""
    if not isinstance(node, Call) or not isinstance(node.arguments, tuple) or not node.arguments:
        return ""
    code = str(node.arguments[0])
    order = "|"
    if isinstance(node.state, tuple) and len(node.state) > 1:
        order = str(node.state[1])
    return code if order == "|" else order + code


def _numbers(node: Node) -> tuple[int, ...] | None:
    if not isinstance(node, tuple) or not all(type(each) is int for each in node):
        return None
    return tuple(each for each in node if isinstance(each, int))


def _argument(node: Node) -> str | None:
    if not isinstance(node, Call) or not isinstance(node.arguments, tuple):
        return None
    return str(node.arguments[0]) if _is(node.what, _ARRAYS, "memory") else None


def _is(what: Node, module: str, name: str) -> bool:
    return isinstance(what, Named) and (what.module, what.name) == (module, name)


def _label(node: Node) -> str | None:
    if not isinstance(node, Reference) or not isinstance(node.id, tuple) or len(node.id) != 2:
        return None
    kind, label = node.id
    return str(label) if kind == "object" else None


def _segment(items: Node, kind: str) -> Node:
    """The first piece of a large container; there are others."""
    if not isinstance(items, tuple | list):
        return items
    if kind == "dict":
        return Pairs([each for each in items if isinstance(each, tuple) and len(each) == 2])
    return [*items, Reference("more")]


def _nodes(value: object) -> Node:
    """Plain data as nodes."""
    if isinstance(value, dict):
        return Pairs([(key, _nodes(each)) for key, each in value.items()])
    if isinstance(value, list):
        return [_nodes(each) for each in value]
    if isinstance(value, tuple):
        return tuple(_nodes(each) for each in value)
    if isinstance(value, set | frozenset):
        return Members(type(value).__name__, list(value))
    return value


def _joined(start: str, told: list[str], total: int, end: str) -> str:
    more = [f"… {total - len(told)} more"] if total > len(told) else []
    return start + ", ".join([*told, *more]) + end


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
