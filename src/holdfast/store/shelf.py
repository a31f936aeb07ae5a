"""Shelves: files of this machine that spare a store work, and are never the truth.

Each is named after the part and the checkpoint that it is of, sealed with our own key, encrypted
where the store is, and checked before anybody looks into it; what does not check is removed. None
is synced, and none is missed: without a key, a home that can be written, or room, there are none.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from holdfast.model.errors import Corrupt
from holdfast.model.files import create, make_folder
from holdfast.store.cipher import PLAIN, Buffer, Cipher
from holdfast.store.keys import Keyring

LIMIT = 256 * 1024 * 1024  # bytes of all files of a shelf
_NAME_SIZE = 32 + 1 + 32
_HEX = frozenset("0123456789abcdef")
_OVER = 3600  # seconds after which nobody writes a draft any more
_SEAL = 16 + 1 + 64  # digits of a key's id and of what it says


class Original(NamedTuple):
    """What a file is of."""

    subject: str
    part: str
    checkpoint: bytes
    root: bytes = b""  # of the part, from the log, where the file stands for it

    @property
    def line(self) -> str:
        """The same for all checkpoints of one subject."""
        return blake3(f"{self.subject}\0{self.part}".encode()).digest()[:16].hex()

    @property
    def name(self) -> str:
        return f"{self.line}-{self.checkpoint.hex()}"


class Shelf:
    """The files of one kind and one store; `folder` is None where there can be none. There is one
    of each part of a subject, or one beside it, and the oldest go first. Thread-safe."""

    def __init__(
        self, folder: Path | None, kind: str, keyring: Keyring, cipher: Cipher = PLAIN
    ) -> None:
        self._folder = folder if keyring.signing is not None else None
        self._kind = kind.encode()
        self._keyring = keyring
        self._cipher = cipher

    @property
    def is_there(self) -> bool:
        """Whether anything can be kept."""
        return self._folder is not None

    def has(self, original: Original) -> bool:
        return self._folder is not None and (self._folder / original.name).exists()

    def find(self, original: Original) -> Buffer | None:
        """What was kept, when it is there and good."""
        if self._folder is None:
            return None
        try:
            data = memoryview((self._folder / original.name).read_bytes())
            seal, box = bytes(data[:_SEAL]), data[_SEAL:]
            if not self._keyring.accepts_note(seal.decode("ascii"), self._message(original, box)):
                raise Corrupt("a file was not made with our key")
            return self._cipher.open(box, self._bound(original))
        except OSError:
            return None
        except (Corrupt, UnicodeDecodeError):
            self.remove(original)
            return None

    def latest(self, subject: str, part: str) -> Buffer | None:
        """What was kept of a part, whatever the checkpoint."""
        line = Original(subject, part, b"").line
        names = sorted(path.name for path in self._paths() if path.name.startswith(line))
        # Two at once are left where somebody died between them; ids grow with time.
        return self.find(Original(subject, part, bytes.fromhex(names[-1][-32:]))) if names else None

    def keep(self, original: Original, plain: Buffer, beside: bytes | None = None) -> None:
        """Keep this in the place of what there was of earlier checkpoints, except of the one that
        it is to lie `beside`, where that can be."""
        if self._folder is None:
            return
        box = self._cipher.seal(plain, self._bound(original))
        seal = self._keyring.note(self._message(original, box)).encode()
        # Without room or permission one goes on without it.
        with suppress(OSError):
            self._write(original.name, [seal, box])
            self._thin(original, beside or original.checkpoint)

    def remove(self, original: Original) -> None:
        """Let a file go that turned out to be of no use."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / original.name).unlink()

    def sweep(self, there: Container[bytes]) -> None:
        """Remove the files of checkpoints that are not `there` any more."""
        for path in self._paths():
            if bytes.fromhex(path.name[-32:]) not in there:
                with suppress(OSError):
                    path.unlink()

    def _write(self, name: str, pieces: list[Buffer]) -> None:
        assert self._folder is not None  # whoever keeps has looked
        make_folder(self._folder)
        draft = self._folder / f".{secrets.token_hex(8)}"
        fd = create(draft)
        try:
            with os.fdopen(fd, "wb") as file:
                file.writelines(pieces)
            draft.rename(self._folder / name)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def _thin(self, newest: Original, beside: bytes) -> None:
        """Remove what the newest file replaces, and the oldest beyond the limit."""
        assert self._folder is not None  # whoever keeps has looked
        for draft in self._folder.glob(".*"):  # of those who died
            if draft.stat().st_mtime < time.time() - _OVER:
                draft.unlink(missing_ok=True)
        left, stay = LIMIT, {newest.name, newest._replace(checkpoint=beside).name}
        for path in sorted(self._paths(), key=lambda each: each.stat().st_mtime_ns, reverse=True):
            replaced = path.name.startswith(newest.line) and path.name not in stay
            left -= 0 if replaced else path.stat().st_size
            if replaced or left < 0:
                path.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        try:
            names = os.listdir(self._folder) if self._folder else []
        except OSError:
            return []
        return [self._folder / n for n in names if self._folder and _is_name(n)]

    def _bound(self, original: Original) -> bytes:
        """What a file's box is bound to."""
        return (
            self._kind
            + original.checkpoint
            + original.root
            + f"{original.subject}\0{original.part}".encode()
        )

    def _message(self, original: Original, box: Buffer) -> bytes:
        return self._bound(original) + blake3(box).digest()


def _is_name(name: str) -> bool:
    return len(name) == _NAME_SIZE and name[32] == "-" and _HEX.issuperset(name[:32] + name[33:])
