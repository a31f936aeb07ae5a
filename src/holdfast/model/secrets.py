"""What looks like a secret, by its name or by the known format of a key. Pure rules."""

from __future__ import annotations

import functools
import re
from itertools import pairwise

_WORDS = {
    "password", "passwd", "passphrase", "passcode", "pwd", "secret", "token", "credential",
    "credentials", "apikey", "authtoken", "bearer",
}  # fmt: skip
_PAIRS = {
    ("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("auth", "key"),
    ("signing", "key"), ("encryption", "key"), ("connection", "string"),
}  # fmt: skip
_SPLIT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

Format = tuple[bytes, bytes]  # what each such key begins with, and its pattern

# By a byte that each has in it: most texts lack most of these bytes, which is found out at once.
_BY_MARK: dict[bytes, tuple[Format, ...]] = {
    b"A": (
        (b"AKIA", rb"AKIA[0-9A-Z]{16}"),
        (b"ASIA", rb"ASIA[0-9A-Z]{16}"),
        (b"AIza", rb"AIza[0-9A-Za-z_-]{35}"),
    ),
    b"_": (
        *((b"gh%c_" % kind, rb"gh%c_[A-Za-z0-9]{36}" % kind) for kind in b"pousr"),
        (b"github_pat_", rb"github_pat_[A-Za-z0-9_]{40}"),
        (b"k_live_", rb"k_live_[A-Za-z0-9]{16}"),
    ),
    b"-": (
        (b"glpat-", rb"glpat-[A-Za-z0-9_-]{20}"),
        (b"sk-", rb"sk-[A-Za-z0-9_-]{20}"),
        (b"xox", rb"xox[abprs]-[A-Za-z0-9-]{10}"),
        (b"-----BEGIN ", rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"),
    ),
    b"J": ((b"eyJ", rb"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10}"),),
}
# Found at the speed of memory, the literal on the left says where the pattern may match.
FORMATS: tuple[Format, ...] = tuple(each for formats in _BY_MARK.values() for each in formats)

# Compiled when one is needed: together they take longer than all else that is imported with them.
_compiled = functools.cache(re.compile)


@functools.lru_cache(10_000)  # the names of a program are few, and asked for again and again
def secret_name(name: str) -> bool:
    """Whether a name says that its text is secret. `tokens` and `tokenizer` do not."""
    words = [word.lower() for word in _SPLIT.findall(name)]
    if any(word in _WORDS for word in words):
        return True
    return any(pair in _PAIRS for pair in pairwise(words))


def secret_value(value: object) -> bool:
    """Whether a text has the format of a known kind of key."""
    if isinstance(value, str):
        return has_key(value.encode("utf-8", "replace"))
    return isinstance(value, bytes) and has_key(value)


def secret(name: object, value: object) -> bool:
    """Whether this variable, entry or attribute is to be left out: only texts ever are."""
    kind = type(value)  # compared by identity: a metaclass may do anything when it is asked
    if (kind is not str and kind is not bytes) or not value:
        return False
    return (isinstance(name, str) and secret_name(name)) or secret_value(value)


def has_key(data: bytes) -> bool:
    """Whether these bytes have a key of a known format in them."""
    for mark, formats in _BY_MARK.items():
        if mark not in data:
            continue
        for literal, pattern in formats:
            position = data.find(literal)
            while position >= 0:
                if _compiled(pattern).match(data, position):
                    return True
                position = data.find(literal, position + 1)
    return False
