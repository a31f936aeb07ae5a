"""Ciphers: what an encrypted store does to bytes before they are written (spec/store-v1.md, 12).

Each box has a key of its own, derived from the store's data key and 16 random bytes, so a nonce is
never used twice and a box may be copied as it is. What a box is bound to is not in it, but without
it the box does not open.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from blake3 import blake3

from holdfast.model.errors import BadInput, Corrupt, Unsupported

if TYPE_CHECKING:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Buffer = bytes | bytearray | memoryview

DATA_KEY_SIZE = 32
NAME = "aes-256-gcm"
_SALT, _TAG = 16, 16
_NONCE = bytes(12)  # each key is used once
_SEALING = "holdfast store v1 sealing"
_CHECK = "holdfast store v1 encryption check"


class Cipher(Protocol):
    """Seals what goes into a store, and opens what comes out of it."""

    @property
    def seals(self) -> bool:
        """Whether what it seals is unreadable for others."""
        ...

    @property
    def overhead(self) -> int:
        """How many bytes a box has more than what is in it."""
        ...

    @property
    def check(self) -> bytes:
        """Tells one data key from another, and nothing about it."""
        ...

    def seal(self, data: Buffer, bound: bytes) -> Buffer: ...

    def open(self, box: Buffer, bound: bytes) -> Buffer:
        """What was sealed; raises Corrupt when the box was changed or is bound to another thing."""
        ...


class PlainCipher:
    """Of a store that is not encrypted: everything is what it is."""

    seals = False
    overhead = 0
    check = b""

    def seal(self, data: Buffer, bound: bytes) -> Buffer:
        return data

    def open(self, box: Buffer, bound: bytes) -> Buffer:
        return box


PLAIN = PlainCipher()


class AesCipher:
    """AES-256-GCM."""

    seals = True
    overhead = _SALT + _TAG

    def __init__(self, data_key: bytes) -> None:
        if len(data_key) != DATA_KEY_SIZE:
            raise BadInput(f"a data key has {DATA_KEY_SIZE} bytes, this one has {len(data_key)}")
        self._aes, self._failure = load_aes()
        self._sealing = blake3(data_key, derive_key_context=_SEALING).digest()
        self.check = blake3(data_key, derive_key_context=_CHECK).digest()[:16]

    def seal(self, data: Buffer, bound: bytes) -> bytes:
        salt = os.urandom(_SALT)
        sealed = self._aes(self._key(salt)).encrypt(_NONCE, data, bound)
        return salt + sealed

    def open(self, box: Buffer, bound: bytes) -> bytes:
        view = memoryview(box)
        try:
            if len(view) < self.overhead:
                raise Corrupt("what is encrypted is too short")
            key = self._key(view[:_SALT])
            plain = self._aes(key).decrypt(_NONCE, view[_SALT:], bound)
        except self._failure:
            raise Corrupt("it was changed, or encrypted with another key") from None
        return plain

    def _key(self, salt: Buffer) -> bytes:
        return blake3(salt, key=self._sealing).digest()


def load_aes() -> tuple[type[AESGCM], type[InvalidTag]]:
    """The library's cipher and its failure; raises Unsupported when it is not installed."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"encrypted stores need the package cryptography ({error})",
            hint="pip install 'holdfast[encryption]'",
        ) from None
    return AESGCM, InvalidTag
