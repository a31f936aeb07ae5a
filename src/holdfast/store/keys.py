"""Keys: who signed an entry, and whether we know them. Keys live outside the store.

`HOLDFAST_KEY` (hex) or `HOLDFAST_KEY_FILE` give a key shared by machines; otherwise
`HOLDFAST_HOME/key` is used and made on first use. Keys that were imported lie in
`HOLDFAST_HOME/keys/` and are only used to recognise what others signed.
"""

from __future__ import annotations

import hmac
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3

from holdfast.model.disk import Disk
from holdfast.model.errors import BadInput, Conflict, NotFound, from_path_error
from holdfast.model.files import create, make_folder
from holdfast.model.home import home

KEY_SIZE = 32
ID_SIZE = 8
UNSIGNED = bytes(ID_SIZE)
NO_MAC = bytes(32)
_SIGNING = "holdfast store v1 signing"
_KEY_ID = "holdfast store v1 key id"
_PROOF = "holdfast store v1 proof"
_NOTE = "holdfast store v1 note"
_KEY_FILE = 4096  # bytes; whatever has more is no key file
_YOUNG = 300.0  # seconds after which any file system has written a name back


@dataclass(frozen=True, slots=True)
class Key:
    """A secret of 32 bytes. Its id may be shown; the secret may not."""

    secret: bytes = field(repr=False)
    id: bytes = field(init=False)
    _signing: bytes = field(init=False, repr=False)
    _proving: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_SIZE:
            raise BadInput(f"a key has {KEY_SIZE} bytes, this one has {len(self.secret)}")
        signing = blake3(self.secret, derive_key_context=_SIGNING).digest()
        key_id = blake3(self.secret, derive_key_context=_KEY_ID).digest()[:ID_SIZE]
        object.__setattr__(self, "_signing", signing)
        proving = blake3(self.secret, derive_key_context=_PROOF).digest()
        object.__setattr__(self, "_proving", proving)
        object.__setattr__(self, "id", key_id)

    @classmethod
    def generate(cls) -> Key:
        return cls(secrets.token_bytes(KEY_SIZE))

    @classmethod
    def from_text(cls, text: str) -> Key:
        """Read 64 hex digits; raises BadInput."""
        try:
            return cls(bytes.fromhex(text.strip()))
        except (ValueError, BadInput):
            raise BadInput(
                "a key is written as 64 hex digits", hint="`holdfast key export` shows one"
            ) from None

    def to_text(self) -> str:
        return self.secret.hex()

    def mac(self, message: bytes) -> bytes:
        return blake3(message, key=self._signing).digest()

    def proof(self, digest: bytes) -> bytes:
        """What the key says of a checkpoint's digest; it travels with the checkpoint."""
        return blake3(digest, key=self._proving).digest()

    def derived(self, context: str, size: int) -> bytes:
        """So many secret bytes for a purpose, which tell nothing of the key."""
        return blake3(self.secret, derive_key_context=context).digest(length=size)

    def note(self, message: bytes) -> bytes:
        """What holders of the key say to each other, outside of any store."""
        return blake3(message, key=blake3(self.secret, derive_key_context=_NOTE).digest()).digest()


class Keyring:
    """The key we sign with, and the keys whose signatures we accept."""

    def __init__(self, signing: Key | None, known: Iterable[Key] = ()) -> None:
        self.signing = signing
        self._known = {key.id: key for key in known}
        if signing is not None:
            self._known[signing.id] = signing

    def sign(self, message: bytes) -> tuple[bytes, bytes]:
        """The key's id and the MAC; zeros when there is no key."""
        if self.signing is None:
            return UNSIGNED, NO_MAC
        return self.signing.id, self.signing.mac(message)

    def knows(self, key_id: bytes) -> bool:
        return key_id in self._known

    def prove(self, digest: bytes, key_id: bytes | None = None) -> bytes:
        """The proof by our signing key, or by another one we have; empty when we have it not."""
        key = self.signing if key_id is None else self._known.get(key_id)
        return b"" if key is None else key.proof(digest)

    def accepts_proof(self, key_id: bytes, proof: bytes, digest: bytes) -> bool:
        """True when a known key made the checkpoint with this digest."""
        key = self._known.get(key_id)
        return key is not None and hmac.compare_digest(proof, key.proof(digest))

    def note(self, message: bytes) -> str:
        """A message's seal by our signing key, as text; empty when there is no key."""
        key = self.signing
        return "" if key is None else f"{key.id.hex()}:{key.note(message).hex()}"

    def accepts_note(self, seal: str, message: bytes) -> bool:
        """True when a known key sealed the message."""
        name, _, given = seal.partition(":")
        for key in self._known.values():
            if key.id.hex() == name:
                return hmac.compare_digest(given.encode(), key.note(message).hex().encode())
        return False

    def accepts(self, key_id: bytes, mac: bytes, message: bytes) -> bool:
        """True when the MAC is right under a known key."""
        return self.judges(key_id, mac, message) is True

    def judges(self, key_id: bytes, mac: bytes, message: bytes) -> bool | None:
        """Whether the MAC is right; None when its key is not known."""
        key = self._known.get(key_id)
        return None if key is None else hmac.compare_digest(mac, key.mac(message))


def load_keyring(
    environ: Mapping[str, str] = os.environ, disk: Disk | None = None, *, make: bool = True
) -> Keyring:
    """The keyring that the environment and HOLDFAST_HOME describe; makes the key on first use, or
    else, without `make`, has none to sign with until then."""
    folder = home(environ)
    signing: Key | None
    if text := environ.get("HOLDFAST_KEY"):
        signing = Key.from_text(text)
    elif path := environ.get("HOLDFAST_KEY_FILE"):
        signing = _read(Path(path))
    elif make:
        signing = _read_or_make(folder / "key", disk or Disk())
    else:
        signing = _read_if_made(folder / "key")
    return Keyring(signing, [_read(path) for path in _imported(folder / "keys")])


def import_key(key: Key, environ: Mapping[str, str] = os.environ, disk: Disk | None = None) -> Path:
    """Accept another machine's signatures from now on."""
    disk = disk or Disk()
    folder = home(environ) / "keys"
    path = folder / f"{key.id.hex()}.key"
    is_new = False
    try:
        make_folder(folder)
        disk.sync_way(folder, "imported key's place")
        with suppress(FileExistsError):
            _write_new(path, key, disk)
            is_new = True
        # Of one that was there, too: whoever imported it may have died before its name was safe.
        disk.sync_directory(folder, "imported key's name")
    except OSError as error:
        raise from_path_error(error, "importing a key") from error
    if not is_new:
        raise Conflict(f"key {key.id.hex()} was imported before")
    return path


def _imported(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.key")) if folder.is_dir() else []
    except OSError as error:
        raise from_path_error(error, "looking for imported keys") from error


def _read(path: Path) -> Key:
    try:
        with path.open("rb") as file:
            return Key.from_text(file.read(_KEY_FILE).decode("ascii"))
    except OSError as error:
        raise from_path_error(error, "reading a key") from error
    except (UnicodeDecodeError, BadInput):
        raise BadInput(
            f"not a key file: {path}",
            hint="a key file holds 64 hex digits, as `holdfast key export` writes them",
        ) from None


def _read_if_made(path: Path) -> Key | None:
    try:
        return _read(path)
    except NotFound:
        return None


def _read_or_make(path: Path, disk: Disk) -> Key:
    try:
        is_new = not path.exists()
        if is_new:
            make_folder(path.parent)
            disk.sync_way(path.parent, "key place")
            with suppress(FileExistsError):  # another process made it first
                _write_new(path, Key.generate(), disk)
        if is_new or time.time() - path.stat().st_ctime < _YOUNG:
            # Whoever made it may have died before its name was safe, and we will rely on it.
            disk.sync_directory(path.parent, "key name")
    except OSError as error:
        raise from_path_error(error, "making the key") from error
    return _read(path)


def _write_new(path: Path, key: Key, disk: Disk) -> None:
    """Write a key file that nobody else can read, whole or not at all, never over another. Its name
    is for the caller to sync."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = create(draft)
    try:
        os.write(fd, key.to_text().encode() + b"\n")
        disk.sync_file(fd, "key data")
    finally:
        os.close(fd)
    try:
        os.link(draft, path)
    finally:
        draft.unlink()
