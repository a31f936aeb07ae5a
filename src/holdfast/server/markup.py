"""HTML that is escaped by construction: text is only ever put in by `element`."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from holdfast.view.words import printable

_EMPTY = frozenset({"meta", "link", "input", "br"})


@dataclass(frozen=True, slots=True)
class Markup:
    """A piece of finished HTML."""

    html: str


Child = Markup | str | None


def element(name: str, /, *children: Child, **attributes: str | bool | None) -> Markup:
    """An element; strings become escaped text, `class_` and `for_` lose their underscore."""
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _EMPTY:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{group(*children).html}</{name}>")


def group(*children: Child) -> Markup:
    """Several pieces, one after the other."""
    return Markup(
        "".join(
            child.html if isinstance(child, Markup) else _text(child)
            for child in children
            if child is not None
        )
    )


def _text(value: str | bool) -> str:
    lines = str(value).split("\n")
    return escape("\n".join(map(printable, lines)), quote=True)
