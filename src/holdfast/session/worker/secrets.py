"""Secrets in serialised data, in source and in running text; by the rules of the model."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable

from holdfast.model.secrets import FORMATS, has_key, secret, secret_name, secret_value

__all__ = [
    "SHORTEST", "redact", "redact_text", "secret", "secret_name", "secret_value", "suspect",
]  # fmt: skip

# What is written as `name=value`. The name is bounded and never given back: a long word is not
# looked at from each of its letters.
_ASSIGNED = re.compile(
    r"""([A-Za-z][\w-]{0,80}+)(["']?\]?\s*[=:]\s*)(b?"[^"]*"|b?'[^']*'|[^\s,;&)\]}]+)"""
)


@functools.cache
def _in_text() -> tuple[re.Pattern[str], ...]:
    """The formats of keys in running text, each to the end of the key."""
    return tuple(
        re.compile(pattern.decode() + (r"[\s\S]*" if literal[:1] == b"-" else r"[A-Za-z0-9_-]*"))
        for literal, pattern in FORMATS
    )


@functools.cache
def _in_line() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern.decode() + r"[A-Za-z0-9_-]*") for _, pattern in FORMATS)


# Quick and generous: they say only that a closer look is worth its time.
_STEMS = (
    b"passw", b"passp", b"passc", b"pwd", b"secret", b"token", b"credential", b"bearer",
    b"connection",
)  # fmt: skip
_KEY_STEM = re.compile(rb"(?:api|access|private|auth|signing|encryption)_?key")
_STRIDE = 1 << 20
_OVERLAP = 32  # longer than any stem
# Shorter ones are shared by the interpreter with unrelated data (``""`` is one object).
SHORTEST = 3


def suspect(data: bytes) -> bool:
    """Whether serialised data is worth a closer look."""
    for start in range(0, len(data), _STRIDE):
        lowered = data[start : start + _STRIDE + _OVERLAP].lower()
        if any(stem in lowered for stem in _STEMS):
            return True
        if b"key" in lowered and _KEY_STEM.search(lowered):
            return True
    return has_key(data)


def redact_text(text: str, known: Iterable[str] = ()) -> str:
    """Running text, such as an exception's, without what looks like a secret or is a known one."""
    for value in sorted(known, key=len, reverse=True):
        text = text.replace(value, "<secret>")
    for pattern in _in_text():
        text = pattern.sub("<secret>", text)
    return _ASSIGNED.sub(_without_value, text)


def _without_value(match: re.Match[str]) -> str:
    name, between, value = match.groups()
    return f"{name}{between}<secret>" if secret_name(name) and value else match[0]


@functools.lru_cache(1000)  # the same cells at every capture
def redact(text: str) -> tuple[str, tuple[tuple[int, str], ...]]:
    """Source without literals that look like secrets, and (line, name) of each that was there.

    Line numbers stay the same. Source that does not parse is returned as it is.
    """
    if not suspect(text.encode("utf-8", "replace")):
        return text, ()
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text, ()
    found = _secret_literals(tree)
    lines = text.encode().split(b"\n")
    notes: list[tuple[int, str]] = []
    for (line, column), (node, name) in sorted(found.items(), key=lambda entry: entry[0])[::-1]:
        end_line, end_column = node.end_lineno or line, node.end_col_offset or column
        tail = lines[end_line - 1][end_column:]
        marker = repr(f"<secret {name}>").encode()
        blank = [b""] * (end_line - line)
        # A literal over several lines leaves its lines behind inside parentheses.
        if blank:
            lines[line - 1 : end_line] = [
                lines[line - 1][:column] + b"(" + marker, *blank[:-1], b")" + tail,
            ]  # fmt: skip
        else:
            lines[line - 1] = lines[line - 1][:column] + marker + tail
        notes.append((line, name))
    rest = b"\n".join(lines).decode()
    for pattern in _in_line():  # comments
        notes += [
            (rest.count("\n", 0, match.start()) + 1, "key") for match in pattern.finditer(rest)
        ]
        rest = pattern.sub("<secret>", rest)
    return rest, tuple(sorted(notes))


def _secret_literals(tree: ast.Module) -> dict[tuple[int, int], tuple[ast.expr, str]]:
    """The literals that look like secrets, by where they stand, and the names they go under."""
    found: dict[tuple[int, int], tuple[ast.expr, str]] = {}
    # The pieces of an f-string are no literals that could be replaced by themselves.
    pieces = {
        id(piece)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for piece in node.values
    }
    for node in ast.walk(tree):
        if id(node) in pieces:
            continue
        for name, value in _named(node):
            for literal in _literals(value):
                if secret(name, _text(literal)):
                    found[literal.lineno, literal.col_offset] = (literal, name)
    return found


def _literals(value: ast.expr) -> list[ast.Constant | ast.JoinedStr]:
    """The texts that an expression is put together from."""
    match value:
        case ast.Constant() | ast.JoinedStr():
            return [value]
        case ast.BinOp():
            return [*_literals(value.left), *_literals(value.right)]
        case ast.IfExp():
            return [*_literals(value.body), *_literals(value.orelse)]
        case ast.BoolOp():
            return [literal for each in value.values for literal in _literals(each)]
        case ast.Call(func=ast.Attribute(value=ast.Constant() | ast.JoinedStr() as literal)):
            return [literal]  # "...".encode()
    return []


def _text(literal: ast.Constant | ast.JoinedStr) -> object:
    if isinstance(literal, ast.Constant):
        return literal.value
    pieces = [piece.value for piece in literal.values if isinstance(piece, ast.Constant)]
    return "".join(piece for piece in pieces if isinstance(piece, str))


def _named(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """Expressions of a node together with the name they go under; `key` when there is none."""
    match node:
        case ast.Assign(targets=[ast.Tuple() as names], value=ast.Tuple() as values):
            return list(zip(map(_name, names.elts), values.elts, strict=False))
        case ast.Assign():
            return [(_name(target), node.value) for target in node.targets]
        case ast.Compare():
            name = _name(node.left)
            return [(name, value) for value in node.comparators]
        case ast.AnnAssign() | ast.NamedExpr() if node.value is not None:
            return [(_name(node.target), node.value)]
        case ast.keyword():
            return [(node.arg or "", node.value)]
        case ast.Dict():
            return [
                (str(key.value) if isinstance(key, ast.Constant) else "", value)
                for key, value in zip(node.keys, node.values, strict=True)
            ]
        case ast.arguments():
            plain = [*node.posonlyargs, *node.args]
            tail = plain[len(plain) - len(node.defaults) :]
            pairs = list(zip(tail, node.defaults, strict=True))
            pairs += [
                (name, value)
                for name, value in zip(node.kwonlyargs, node.kw_defaults, strict=True)
                if value is not None
            ]
            return [(name.arg, value) for name, value in pairs]
        case ast.Constant() | ast.JoinedStr():
            return [("key", node)] if secret_value(_text(node)) else []
    return []


def _name(target: ast.expr) -> str:
    match target:
        case ast.Name():
            return target.id
        case ast.Attribute():
            return target.attr
        case ast.Subscript(slice=ast.Constant(value=str() as key)):
            return key
    return ""
