"""Why an item could not be kept or brought back: an exception in one line, without secrets."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model.secrets import USUAL, Rule
from holdfast.session.worker.secrets import SHORTEST, redact_text
from holdfast.session.worker.texts import message_of, type_name

LONGEST = 200


def reason_of(error: BaseException, known: Iterable[str] = ()) -> str:
    """The type and the first line of an exception; `known` are texts to leave out of it."""
    text = message_of(error)
    line = redact_text(text, known).split("\n")[0]
    return f"{_short(error)}: {line}"[:LONGEST]


def message_line(error: BaseException, known: Iterable[str] = ()) -> str:
    """The first line of an exception's text, or its type when there is none."""
    line = redact_text(message_of(error), known).split("\n")[0]
    return (line or _short(error))[:LONGEST]


def _short(error: BaseException) -> str:
    return type_name(error).rpartition(".")[2]


def secret_texts(names: dict[str, object], rule: Rule = USUAL) -> frozenset[str]:
    """The texts of variables or attributes that are secrets."""
    found: set[str] = set()
    for name, value in list(names.items()):
        if type(value) is not str and type(value) is not bytes:
            continue  # known at once, which a name is not
        if type(name) is not str or len(value) < SHORTEST or not rule.says(name):
            continue
        if rule.secret(name, value):
            found.add(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)
    return frozenset(found)
