"""Copies: the values that heads have, each whole in one file of this machine, so that a process
that has just begun reads them at once.

A copy is an aid and never the truth (`shelf.py`). It goes when its checkpoint is dropped or another
one becomes the head (docs/decisions/0017).
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

import msgspec

from holdfast.model.errors import Corrupt
from holdfast.store.cipher import PLAIN, Cipher
from holdfast.store.keys import Keyring
from holdfast.store.parts.structure import Value, decode_value
from holdfast.store.shelf import Original, Shelf

SMALLEST = 64 * 1024  # bytes; less is put together as quickly
LARGEST = 32 * 1024 * 1024

_encode = msgspec.msgpack.Encoder().encode


class Copies:
    """The copies of one store; `folder` is None where there can be none. Thread-safe."""

    def __init__(self, folder: Path | None, keyring: Keyring, cipher: Cipher = PLAIN) -> None:
        self._shelf = Shelf(folder, "copy", keyring, cipher)

    def find(self, original: Original) -> Value | None:
        """The value, when there is a good copy of it."""
        plain = self._shelf.find(original)
        if plain is None:
            return None
        try:
            return decode_value(plain)
        except (Corrupt, ValueError, msgspec.MsgspecError):
            self._shelf.remove(original)
            return None

    def keep(self, original: Original, value: Value) -> None:
        """Keep a copy in the place of an earlier one of that subject, where that can be."""
        if not self._shelf.is_there or self._shelf.has(original):
            return
        try:
            plain = _encode(value)
        except (OverflowError, ValueError, TypeError):
            return  # an integer beyond 64 bits
        if SMALLEST <= len(plain) <= LARGEST:
            self._shelf.keep(original, plain)

    def sweep(self, there: Container[bytes]) -> None:
        """Remove the copies of checkpoints that are not `there` any more."""
        self._shelf.sweep(there)
