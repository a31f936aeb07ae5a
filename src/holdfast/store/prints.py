"""Prints: by what the pages of parts were told apart when they were last saved on this machine.

They are an aid and never the truth (`shelf.py`): a block whose prints are not known is compared
with its bytes. Only parts that are stored compressed have any, because of others the bytes are
there at once (docs/decisions/0042).
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from holdfast.store.cipher import PLAIN, Cipher
from holdfast.store.keys import Keyring
from holdfast.store.parts.printing import SECRET_SIZE, Ink, Printing
from holdfast.store.shelf import LIMIT, Original, Shelf

_CONTEXT = "holdfast store v1 prints of pages"
_SMALLEST = 16 * 1024  # bytes, of a part of 4 MiB; less is compared as quickly
_LARGEST = LIMIT // 4


class Prints:
    """The prints of one store; `folder` is None where there can be none. Thread-safe."""

    def __init__(self, folder: Path | None, keyring: Keyring, cipher: Cipher = PLAIN) -> None:
        self._shelf = Shelf(folder, "prints", keyring, cipher)
        self._keyring = keyring
        self._ink: Ink | None = None

    def begin(self, subject: str, part: str, parent: bytes | None = None) -> Printing | None:
        """For a part that is about to be written; None where none can be kept."""
        key = self._keyring.signing
        if key is None or not self._shelf.is_there:
            return None
        if self._ink is None:
            self._ink = Ink(key.derived(_CONTEXT, SECRET_SIZE))
        before = self._shelf.find(Original(subject, part, parent)) if parent else None
        return Printing(self._ink, before or self._shelf.latest(subject, part) or b"")

    def keep(self, original: Original, printing: Printing, parent: bytes | None = None) -> None:
        """Keep the prints of a part that is committed, and the parent's: the next one may be made
        from there again."""
        found = printing.encode()
        if _SMALLEST <= len(found) <= _LARGEST:
            self._shelf.keep(original, found, beside=parent)

    def sweep(self, there: Container[bytes]) -> None:
        """Remove the prints of checkpoints that are not `there` any more."""
        self._shelf.sweep(there)
