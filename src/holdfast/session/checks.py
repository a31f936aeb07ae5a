"""What a caller gives, looked at before it is sent: a worker ends over what it cannot read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping

from holdfast.model.errors import BadInput
from holdfast.model.secrets import Rule
from holdfast.protocol.frames import MAX_FRAME

KEEP_SECRETS, LEAVE_OUT = "HOLDFAST_KEEP_SECRETS", "HOLDFAST_LEAVE_OUT"
_ROOM = 4096  # of a frame, for everything but the text


def text(what: str, value: object) -> str:
    """A text that can travel. Raises BadInput."""
    if not isinstance(value, str):
        raise BadInput(f"{what} is {type(value).__name__}, not text")
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise BadInput(
            f"{what} holds a lone surrogate at {error.start}", hint="it is not valid Unicode"
        ) from None
    if size > MAX_FRAME - _ROOM:
        raise BadInput(f"{what} has {size} bytes, more than {MAX_FRAME - _ROOM}")
    return value


def path(what: str, value: object) -> str:
    """A path, as text. Raises BadInput."""
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if "\0" in text(what, given):
        raise BadInput(f"{what} holds a zero byte, which no path can")
    return str(given)


def flag(what: str, value: object) -> bool:
    """True or False. Raises BadInput."""
    if not isinstance(value, bool):
        raise BadInput(f"{what} is {type(value).__name__}, not True or False")
    return value


def seconds(what: str, value: object) -> float | None:
    """A time, or None for no limit. Raises BadInput."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise BadInput(f"{what} is {value!r}, not a number of seconds")
    return value


def size(what: str, value: object) -> int | None:
    """A number of bytes, or None for no limit. Raises BadInput."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise BadInput(f"{what} is {value!r}, not a number of bytes")
    return value


def count(what: str, value: object, least: int) -> int:
    """A number of things. Raises BadInput."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadInput(f"{what} is {value!r}, not a number of {least} or more")
    return value


def secrets(what: str, value: object) -> dict[str, str | bytes]:
    """Names and their texts or bytes. Raises BadInput, without telling a text."""
    if not isinstance(value, Mapping):
        return {**texts(what, value)}
    binary = {name: given for name, given in value.items() if isinstance(given, bytes)}
    for name in binary:
        text(f"a name in {what}", name)
    return {**texts(what, {k: v for k, v in value.items() if k not in binary}), **binary}


def rule(keep_secrets: object, leave_out: object) -> Rule:
    """What a session takes for secrets. Raises BadInput."""
    for what, value in (("keep_secrets", keep_secrets), ("leave_out", leave_out)):
        if what == "keep_secrets" and isinstance(value, bool):
            continue
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            kinds = "True or a list of names" if what == "keep_secrets" else "a list of names"
            raise BadInput(
                f"{what} is {type(value).__name__}, not {kinds}", hint=f"{what}=['some_name']"
            )
    kept = keep_secrets if isinstance(keep_secrets, bool) else _names("keep_secrets", keep_secrets)
    return Rule.of(kept, _names("leave_out", leave_out))


def rule_of(environ: Mapping[str, str]) -> Rule:
    """What an environment says of secrets: `HOLDFAST_KEEP_SECRETS=cache_key` keeps one, `a,b`
    several, and `1` all; `HOLDFAST_LEAVE_OUT` has more names. Raises BadInput."""
    kept, more = environ.get(KEEP_SECRETS, ""), environ.get(LEAVE_OUT, "")
    return rule(kept == "1" or _listed(kept), _listed(more))


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _names(what: str, given: object) -> list[str]:
    assert isinstance(given, Iterable)
    return [text(f"a name in {what}", name) for name in given]


def texts(what: str, value: object) -> dict[str, str]:
    """Names and their texts. Raises BadInput, without telling a text: these are secrets."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadInput(f"{what} is {type(value).__name__}, not a mapping from names to texts")
    return {
        text(f"a name in {what}", name): text(f"{what}[{name!r}]", given)
        for name, given in value.items()
    }
