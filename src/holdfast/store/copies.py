"""Copies: the values that heads have, each whole in one file of this machine, so that a process
that has just begun reads them at once.

A copy is an aid and never the truth. It is named after its checkpoint, sealed with our own key,
encrypted where the store is, and checked before it is parsed; what does not check is removed, and
the value is put together from its chunks. It goes when its checkpoint is dropped or another one
becomes the head (docs/decisions/0017).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from blake3 import blake3

from holdfast.model.errors import Corrupt
from holdfast.store.cipher import PLAIN, Buffer, Cipher
from holdfast.store.keys import Keyring
from holdfast.store.parts.structure import Value, decode_value

SMALLEST = 64 * 1024  # bytes; less is put together as quickly
LARGEST = 32 * 1024 * 1024
LIMIT = 256 * 1024 * 1024  # of all copies of a store
_NAME_SIZE = 32 + 1 + 32
_SEAL = 16 + 1 + 64  # digits of a key's id and of what it says

_encode = msgspec.msgpack.Encoder().encode


class Original(NamedTuple):
    """What a copy is of."""

    subject: str
    part: str
    checkpoint: bytes
    root: bytes  # of the part, from the log

    @property
    def line(self) -> str:
        """The same for all checkpoints of one subject."""
        return blake3(f"{self.subject}\0{self.part}".encode()).digest()[:16].hex()

    @property
    def name(self) -> str:
        return f"{self.line}-{self.checkpoint.hex()}"


class Copies:
    """The copies of one store; `folder` is None where there can be none. Thread-safe."""

    def __init__(self, folder: Path | None, keyring: Keyring, cipher: Cipher = PLAIN) -> None:
        self._folder = folder if keyring.signing is not None else None
        self._keyring = keyring
        self._cipher = cipher

    def find(self, original: Original) -> Value | None:
        """The value, when there is a good copy of it."""
        if self._folder is None:
            return None
        path = self._folder / original.name
        try:
            data = memoryview(path.read_bytes())
            seal, box = bytes(data[:_SEAL]), data[_SEAL:]
            if not self._keyring.accepts_note(seal.decode("ascii"), _message(original, box)):
                raise Corrupt("a copy was not made with our key")
            return decode_value(self._cipher.open(box, _bound(original)))
        except OSError:
            return None
        except (Corrupt, ValueError, msgspec.MsgspecError):
            with suppress(OSError):
                path.unlink()
            return None

    def keep(self, original: Original, value: Value) -> None:
        """Keep a copy in the place of an earlier one of that subject, where that can be."""
        if self._folder is None or (self._folder / original.name).exists():
            return
        try:
            plain = _encode(value)
        except (OverflowError, ValueError, TypeError):
            return  # an integer beyond 64 bits
        if not SMALLEST <= len(plain) <= LARGEST:
            return
        box = self._cipher.seal(plain, _bound(original))
        seal = self._keyring.note(_message(original, box)).encode()
        # Without room or permission one goes on without it.
        with suppress(OSError):
            self._write(original.name, [seal, box])
            self._thin(original)

    def sweep(self, there: Container[bytes]) -> None:
        """Remove the copies of checkpoints that are not `there` any more."""
        for path in self._paths():
            if bytes.fromhex(path.name[-32:]) not in there:
                with suppress(OSError):
                    path.unlink()

    def _write(self, name: str, pieces: list[Buffer]) -> None:
        assert self._folder is not None  # whoever keeps has looked
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._folder / f".{secrets.token_hex(8)}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.writelines(pieces)
            draft.rename(self._folder / name)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def _thin(self, newest: Original) -> None:
        """Remove what the newest copy replaces, and the oldest beyond the limit."""
        left = LIMIT
        for path in sorted(self._paths(), key=lambda each: each.stat().st_mtime_ns, reverse=True):
            replaced = path.name.startswith(newest.line) and path.name != newest.name
            left -= 0 if replaced else path.stat().st_size
            if replaced or left < 0:
                path.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        try:
            names = os.listdir(self._folder) if self._folder else []
        except OSError:
            return []
        return [self._folder / n for n in names if self._folder and _is_name(n)]


def _is_name(name: str) -> bool:
    return len(name) == _NAME_SIZE and name[32] == "-" and name.replace("-", "").isalnum()


def _bound(original: Original) -> bytes:
    """What a copy's box is bound to."""
    return (
        b"copy"
        + original.checkpoint
        + original.root
        + f"{original.subject}\0{original.part}".encode()
    )


def _message(original: Original, box: Buffer) -> bytes:
    return _bound(original) + blake3(box).digest()
