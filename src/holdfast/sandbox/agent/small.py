"""What the agent needs of `json` and `signal`, straight from the interpreter's own modules.

`json` and `signal` bring `re` and `enum` along, and `typing` both and more: that was two thirds of
what an agent took to begin, which is time somebody waits for a new sandbox.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_scanner
from _signal import (  # type: ignore[import-not-found]
    SIG_BLOCK,
    SIG_DFL,
    SIG_SETMASK,
    SIG_UNBLOCK,
    SIGCHLD,
    SIGKILL,
    SIGPIPE,
    SIGXFSZ,
    pthread_sigmask,
    set_wakeup_fd,
    signal,
    valid_signals,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Order = dict[str, Any]  # JSON: what is in it depends on its type

__all__ = [
    "SIGCHLD",
    "SIGKILL",
    "SIGPIPE",
    "SIGXFSZ",
    "SIG_BLOCK",
    "SIG_DFL",
    "SIG_SETMASK",
    "SIG_UNBLOCK",
    "decode",
    "encode",
    "pthread_sigmask",
    "set_wakeup_fd",
    "signal",
    "valid_signals",
]


class _Plain:
    """How `json.loads` reads when it is told nothing."""

    strict = True
    object_hook = object_pairs_hook = parse_constant = None
    parse_float, parse_int = float, int


_scan = make_scanner(_Plain)  # type: ignore[arg-type]


def decode(text: bytes) -> Order:
    """Raises StopIteration or ValueError for what is no JSON; a host says no such thing."""
    found: Order = _scan(text.decode(), 0)[0]
    return found


def encode(header: Mapping[str, object]) -> bytes:
    """Names with texts and finite numbers, which is all that an agent says."""
    pairs = (f"{_word(name)}: {_word(value)}" for name, value in header.items())
    return f"{{{', '.join(pairs)}}}".encode()


def _word(value: object) -> str:
    return encode_basestring_ascii(value) if isinstance(value, str) else repr(value)
