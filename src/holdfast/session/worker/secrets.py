"""Secrets in serialised data, in source and in running text; the model decides what is one.

A literal that is left out of source becomes a call, `__holdfast_secret__('password')`. A restore
puts the text there again if it is given; else the call gives a placeholder, which raises when it
is used. So a secret never becomes another text.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections.abc import Iterable, Mapping
from types import FunctionType

from holdfast.model.secrets import (
    SURE,
    UNNAMED,
    USUAL,
    Rule,
    find,
    has_key,
    how_to_give,
    keys_in,
    looks_made,
    plain_name,
    said_by,
    secret_value,
    typed,
)
from holdfast.session.worker.placeholder import MARK, LeftOut, Placeholder, PlaceholderError

SHORTEST = 3  # characters of a text that is looked for in reasons

# -- serialised data -------------------------------------------------------------------------

# Quick and generous: they say only that a closer look is worth its time.
_SURE_STEMS = (b"secret", b"credential")
_PASS = re.compile(rb"pass(?:w|ph|co|[0-9_]*\x94)")
_KEY = re.compile(
    rb"key(?:(?<=api.key)|(?<=apikey)|(?<=access.key)|(?<=accesskey)|(?<=private.key)"
    rb"|(?<=privatekey))"
)
# Names that say little end the texts that they are, as a pickle has them.
_UNSURE_STEMS = (b"token", b"key", b"pwd", b"auth", b"bearer", b"pin", b"cookie")
_END = rb"(?:orization)?[0-9_]*\x94"
_LONG = re.compile(rb"[!-~]{16,}")
_FEW = 1000  # texts that may be made by a machine, of which each is looked at
_STRIDE = 1 << 20
_OVERLAP = 64  # longer than any name that is looked for


def suspect(data: bytes, rule: Rule = USUAL) -> bool:
    """Whether serialised data is worth a closer look."""
    if rule.keep_all and not rule.leave_out:
        return False
    extra = [_naming(name) for name in rule.leave_out]
    unsure = False
    for start in range(0, len(data), _STRIDE):
        lowered = data[start : start + _STRIDE + _OVERLAP].lower()
        if any(name.search(lowered) for name in extra):
            return True
        if not rule.keep_all:
            if _says_sure(lowered):
                return True
            unsure = unsure or _says_unsure(lowered)
    return not rule.keep_all and ((unsure and _has_made(data)) or has_key(data, exact=False))


def _says_sure(lowered: bytes) -> bool:
    if any(stem in lowered for stem in _SURE_STEMS):
        return True
    if b"pass" in lowered and _PASS.search(lowered):
        return True
    return b"key" in lowered and _KEY.search(lowered) is not None


def _says_unsure(lowered: bytes) -> bool:
    return any(stem in lowered and _ending(stem).search(lowered) for stem in _UNSURE_STEMS)


@functools.cache
def _naming(name: str) -> re.Pattern[bytes]:
    """A name, however it is written: `study_id`, `Study-Id`."""
    plain = re.escape(name.lower().encode())
    return re.compile(plain.replace(b"_", rb"[^a-z0-9]{1,4}"))


@functools.cache
def _ending(stem: bytes) -> re.Pattern[bytes]:
    return re.compile(stem + _END)


def _has_made(data: bytes) -> bool:
    """Whether there may be a text that a machine made; many long ones are taken for such."""
    for count, match in enumerate(_LONG.finditer(data)):
        text = match[0][:4096]
        # The byte before a text, its length, may look like a part of it.
        if count > _FEW or looks_made(text) or looks_made(text[1:]):
            return True
    return False


def without(rule: Rule, names: Iterable[object], values: Iterable[object]) -> tuple[object, ...]:
    """These values, with `LeftOut` in the places of those that are secrets by their names."""
    return tuple(
        LeftOut(name, type(value) is bytes)
        if type(name) is str and rule.secret(name, value)
        else value
        for name, value in zip(names, values, strict=True)
    )


def parameters(function: FunctionType) -> tuple[str, ...]:
    """The parameters that a function's defaults are for."""
    code, count = function.__code__, len(function.__defaults__ or ())
    return code.co_varnames[max(0, code.co_argcount - count) : code.co_argcount]


def defaults(rule: Rule, function: FunctionType) -> tuple[object, ...] | None:
    """A function's defaults, without secrets."""
    given = function.__defaults__
    if not given or not any(type(value) is str or type(value) is bytes for value in given):
        return given  # as most are
    names = parameters(function)
    return without(rule, names, given) if given and len(given) == len(names) else given


def again(given: Mapping[str, str | bytes], name: str, binary: bool) -> object:
    """What comes back where a secret was left out: what was given, or a placeholder."""
    value = find(given, name)
    kind = "bytes" if binary else "str"
    try:
        if value is not None:
            return typed(value, binary)
    except UnicodeDecodeError:
        return Placeholder(kind, f"the secret that was given for {name} is no text", b"", name)
    return Placeholder(kind, how_to_give(name), b"", name)


# -- running text ----------------------------------------------------------------------------

# What is written as `name=value`. The name is bounded and never given back: a long word is not
# looked at from each of its letters.
_ASSIGNED = re.compile(
    r"""([A-Za-z][\w-]{0,80}+)(["']?\]?\s*[=:]\s*)(b?"[^"]*"|b?'[^']*'|[^\s,;&)\]}]+)"""
)
_REST = re.compile(rb"[A-Za-z0-9_-]*")
_PEM_END = re.compile(rb"-----END [A-Z ]{0,60}-----|\Z")
MASK = "<secret>"


def redact_text(text: str, known: Iterable[str] = ()) -> str:
    """Running text, such as an exception's, without what looks like a secret or is a known one."""
    for value in sorted(known, key=len, reverse=True):
        text = text.replace(value, MASK)
    text = without_keys(text)
    return _ASSIGNED.sub(_without_value, text)


def without_keys(text: str) -> str:
    """Running text without keys of known formats."""
    data = text.encode("utf-8", "surrogatepass")
    found = keys_in(data)
    if not found:
        return text
    pieces: list[bytes] = []
    at = 0
    for start, end in found:
        if start < at:
            continue
        pieces += [data[at:start], MASK.encode()]
        pem = data.startswith(b"-----", start)
        match = _PEM_END.search(data, end) if pem else _REST.match(data, end)
        at = match.end() if match else end
    return b"".join([*pieces, data[at:]]).decode("utf-8", "surrogatepass")


def _without_value(match: re.Match[str]) -> str:
    name, between, value = match.groups()
    said = said_by(name)
    if value and (said == SURE or (said and looks_made(value.strip("\"'")))):
        return f"{name}{between}{MASK}"
    return match[0]


# -- source ----------------------------------------------------------------------------------

_MARKED = re.compile(rf"{MARK}\('((?:[^'\\\n]|\\.)*)'(, bytes)?\)|{MARK}\.(\w+)")
_OLD = re.compile(r"'<secret ([^'\n]*)>'")

Note = tuple[int, str]  # a line that lost something, and the name of that
Redacted = tuple[str, tuple[Note, ...]]


@functools.lru_cache(1000)  # the same cells at every capture
def redact(text: str, rule: Rule = USUAL) -> Redacted:
    """Source without literals that look like secrets, and (line, name) of each that was there.

    Line numbers stay the same. Source that does not parse loses the keys that are in it.
    """
    data = text.encode("utf-8", "replace")
    # Names do not end here as in a pickle.
    unsure = any(stem in data.lower() for stem in (*_UNSURE_STEMS, b"pass"))
    joined = re.search(r"""["']\s*[bBfFrRuU]{0,2}["']""", text)  # literals that make one together
    if not (unsure or joined or MARK in text or suspect(data, rule)):
        return text, ()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _commented(text, [], rule)
    found, notes = _secret_literals(tree, rule)
    lines = text.encode("utf-8", "surrogatepass").split(b"\n")
    for (line, column), (node, name, form) in sorted(found.items(), key=lambda e: e[0])[::-1]:
        end_line, end_column = node.end_lineno or line, node.end_col_offset or column
        tail = lines[end_line - 1][end_column:]
        marker = form.encode()
        blank = [b""] * (end_line - line)
        # A literal over several lines leaves its lines behind inside parentheses.
        if blank:
            lines[line - 1 : end_line] = [
                lines[line - 1][:column] + b"(" + marker, *blank[:-1], b")" + tail,
            ]  # fmt: skip
        else:
            lines[line - 1] = lines[line - 1][:column] + marker + tail
        notes.append((line, name))
    return _commented(b"\n".join(lines).decode("utf-8", "surrogatepass"), notes, rule)


def _commented(text: str, notes: list[Note], rule: Rule) -> Redacted:
    """Without the keys in comments, and in documentation."""
    if not rule.keep_all:
        data = text.encode("utf-8", "surrogatepass")
        notes = [*notes, *((data.count(b"\n", 0, at) + 1, UNNAMED) for at, _ in keys_in(data))]
        kept = without_keys(text)
        # A key over several lines leaves its lines behind.
        text = kept + "\n" * (text.count("\n") - kept.count("\n"))
    return text, tuple(sorted(set(notes)))


def filled(text: str, given: Mapping[str, str | bytes], older: bool = False) -> str:
    """Source with the secrets that were given again put back in.

    An `older` checkpoint has texts where newer ones have calls; they become calls.
    """
    if older:
        text = _OLD.sub(lambda match: call(match[1], False), text)

    def put(match: re.Match[str]) -> str:
        name = ast.literal_eval(f"'{match[1]}'") if match[3] is None else match[3]
        value = find(given, name)
        if value is None:
            return match[0]
        return repr(typed(value, match[2] is not None))

    return _MARKED.sub(put, text) if MARK in text else text


def left_in(text: str, older: bool = False) -> list[str]:
    """The names of the secrets that were left out of a source."""
    found = [m[3] or ast.literal_eval(f"'{m[1]}'") for m in _MARKED.finditer(text)]
    return found + ([match[1] for match in _OLD.finditer(text)] if older else [])


def call(name: str, binary: bool) -> str:
    """What stands in source for a secret."""
    quoted = repr(name) if "'" not in name else repr(plain_name(name))
    return f"{MARK}({quoted}{', bytes' if binary else ''})"


class _Marker:
    """What calls in source call: gives placeholders."""

    def __call__(self, name: str, kind: type = str) -> object:
        return again({}, name, kind is bytes)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise PlaceholderError(f"a secret was left out of this source: {how_to_give(name)}")


def install() -> None:
    """Let the source of this process find what stands for secrets."""
    if not hasattr(builtins, MARK):
        setattr(builtins, MARK, _Marker())


Literal = ast.Constant | ast.JoinedStr
Found = dict[tuple[int, int], tuple[Literal, str, str]]


def _secret_literals(tree: ast.Module, rule: Rule) -> tuple[Found, list[Note]]:
    """The literals that look like secrets, by where they stand: with the names that they go under,
    and what is to stand there. Also those that are calls already."""
    found: Found = {}
    notes: list[Note] = []
    around: dict[int, ast.JoinedStr] = {}  # the outermost f-string around a node
    special: dict[int, str] = {}  # literals where no call can stand
    kept: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr() if id(node) not in around:
                around.update((id(inner), node) for inner in ast.walk(node) if inner is not node)
            case ast.MatchValue(value=ast.Constant() as alone):
                special[id(alone)] = "pattern"
            case ast.MatchMapping():
                special.update((id(key), "pattern") for key in node.keys)
            case ast.Expr(value=ast.Constant() as alone):
                special[id(alone)] = "documentation"
            case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str() as what), *_]):
                if name == MARK:
                    notes.append((node.lineno, what))
                    kept.update(map(id, node.args))
            case ast.Attribute(value=ast.Name(id=name), attr=what) if name == MARK:
                notes.append((node.lineno, what))
    for node in ast.walk(tree):
        for name, value in _named(node):
            for literal in _literals(value):
                if rule.kept(name):
                    kept.add(id(literal))
                if id(literal) in kept or not rule.secret(name, _text(literal)):
                    continue
                how = special.get(id(literal))
                whole = around.get(id(literal), literal)
                if how == "documentation":
                    continue  # the keys in it are taken as from a comment
                binary = isinstance(_text(literal), bytes)
                form = f"{MARK}.{plain_name(name)}" if how == "pattern" else call(name, binary)
                found.setdefault((whole.lineno, whole.col_offset), (whole, name, form))
    return found, notes


def _literals(value: ast.expr) -> list[Literal]:
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


def _text(literal: Literal) -> object:
    if isinstance(literal, ast.Constant):
        return literal.value
    pieces = [piece.value for piece in literal.values if isinstance(piece, ast.Constant)]
    return "".join(piece for piece in pieces if isinstance(piece, str))


_BY_NAME = {"get", "getenv", "setdefault", "putenv", "setenv", "pop", "setattr"}


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
        case ast.Call(args=[*_, ast.Constant(value=str() as name), value]):
            return [(name, value)] if _called(node.func) in _BY_NAME else []
        case ast.Constant() | ast.JoinedStr():
            return [(UNNAMED, node)] if secret_value(_text(node)) else []
    return []


def _called(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else _name(function)


def _name(target: ast.expr) -> str:
    match target:
        case ast.Name():
            return target.id
        case ast.Attribute():
            return target.attr
        case ast.Subscript(slice=ast.Constant(value=str() as key)):
            return key
    return ""
