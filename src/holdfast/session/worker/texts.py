"""Values, types and exceptions as texts, whatever user code does when it is asked for them."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.session.worker.interrupts import Interrupted

MAX_TEXT = 1 << 20  # characters of a repr that travel to the host


def type_name(value: object) -> str:
    """A type as people write it: without the module when it is the session's or builtin."""
    kind = type(value)
    if (name := _NAMES.get(id(kind))) is not None:
        return name
    module = type_module(kind)
    prefix = "" if module in ("builtins", "__main__") else f"{module}."
    return clean(f"{prefix}{_QUALNAME(kind)}")


# Of what most values are, by identity; nobody can rename these.
_NAMES = {
    id(kind): kind.__name__
    for kind in (
        bool, int, float, complex, str, bytes, list, dict, tuple, set, frozenset, type(None),
    )
}  # fmt: skip
# As `type` itself has them: a metaclass may do anything when it is asked.
_QUALNAME: Callable[[type], str] = type.__dict__["__qualname__"].__get__
_MODULE: Callable[[type], object] = type.__dict__["__module__"].__get__


def type_module(kind: type) -> str:
    """The module of a type, whatever its metaclass or its body say."""
    try:
        module = _MODULE(kind)
    except AttributeError:
        return ""
    return module if type(module) is str else ""


def text_of(value: object, show: Callable[[object], str] = repr) -> str:
    """A repr of bounded length, even of what has a broken one."""
    try:
        text = show(value)
    except Exception as error:  # noqa: BLE001  # a broken __repr__ must not cost the result
        text = f"<{type_name(value)} whose repr raises {type(error).__name__}>"
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."


def message_of(error: BaseException) -> str:
    """An exception's text, whatever its `__str__` does."""
    try:
        return clean(text_of(error, str))
    except Interrupted:
        raise
    except BaseException as raised:  # noqa: BLE001  # user code: `__str__` may raise anything
        return f"<{type_name(error)} whose text raises {type_name(raised)}>"


def clean(text: str) -> str:
    """Lone surrogates cannot travel as text."""
    return text.encode("utf-8", "backslashreplace").decode()
