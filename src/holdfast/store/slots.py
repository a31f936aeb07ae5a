"""Key slots: copies of an encrypted store's data key, each wrapped by a secret of somebody's.

Changing a secret writes one small file and touches nothing else: the data key stays. Of every
change the new slot is durable before the old one goes (spec/store-v1.md, section 12).
"""

from __future__ import annotations

import os
import secrets as random
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
from blake3 import blake3

from holdfast.model import moment
from holdfast.model.disk import Disk
from holdfast.model.errors import (
    BadInput,
    Conflict,
    Corrupt,
    Denied,
    NotFound,
    Unsupported,
    from_os_error,
)
from holdfast.model.files import create
from holdfast.store.backends.contract import Backend
from holdfast.store.cipher import DATA_KEY_SIZE, AesCipher, load_aes
from holdfast.store.log.entries import Encrypted, decode_entry

SECRET_SIZE = 32
COST = 2**17  # scrypt's n; with r = 8 it takes 128 MiB and a few tenths of a second
_R, _P = 8, 1
_MEMORY = 1024**3  # bytes; a slot that asks for more is not one of ours
_FILE_CONTEXT = "holdfast store v1 key file"
_MAX_FILE = 64 * 1024
VERSION = 1
FIRST = "0" * 16  # the name of the slot that makes a store an encrypted one

Kind = Literal["passphrase", "file"]


@dataclass(frozen=True, slots=True)
class Secret:
    """What opens a slot. It is never shown."""

    kind: Kind
    value: bytes = field(repr=False)

    @classmethod
    def passphrase(cls, text: str) -> Secret:
        """Raises BadInput for an empty one."""
        if not text:
            raise BadInput("an empty passphrase")
        # The same letters typed on another system may come in another form.
        return cls(
            "passphrase", unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")
        )

    @classmethod
    def passphrase_file(cls, path: Path) -> Secret:
        """A passphrase from a file's first line."""
        text = _read(path).decode("utf-8", "surrogateescape").split("\n", 1)[0].rstrip("\r")
        if not text:
            raise BadInput(f"the passphrase file {path} begins with an empty line")
        return cls.passphrase(text)

    @classmethod
    def key_file(cls, path: Path) -> Secret:
        """A key file: 64 hex digits."""
        try:
            value = bytes.fromhex(_read(path).decode("ascii").strip())
        except ValueError:
            value = b""
        if len(value) != SECRET_SIZE:
            raise BadInput(
                f"not a key file: {path}",
                hint="`holdfast init --encrypt --key-file` makes one; it holds 64 hex digits",
            )
        return cls("file", value)


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A wrapped data key, as it is kept; texts of hex digits where there are bytes."""

    version: int = VERSION
    kind: Kind
    created: str
    salt: str
    n: int = 0
    r: int = 0
    p: int = 0
    nonce: str
    wrapped: str = ""

    def bound(self, name: str, store_id: str) -> bytes:
        """What the wrapped key is bound to: everything else, and where it is."""
        rest = msgspec.structs.replace(self, wrapped="")
        return msgspec.json.encode([store_id, name, rest])


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotInfo:
    """A slot as people see it."""

    name: str
    kind: Kind
    created: str


def is_encrypted(backend: Backend) -> bool:
    return bool(backend.slots())


def listed(backend: Backend) -> list[SlotInfo]:
    """All slots, oldest first; raises Corrupt for one that cannot be read."""
    found = [(name, _decode(name, data)) for name, data in backend.slots().items()]
    infos = [SlotInfo(name=name, kind=slot.kind, created=slot.created) for name, slot in found]
    return sorted(infos, key=lambda info: (info.created, info.name))


def begin(backend: Backend, secret: Secret, cost: int = COST) -> bytes:
    """Make a new store an encrypted one; gives its data key. Raises Conflict when it is not new, or
    when another process was faster: the first slot has a fixed name, so that there is one."""
    tail = backend.entries(0)
    if tail.frames or tail.base:
        raise Conflict(
            f"the store at {backend.url} has content that is not encrypted",
            hint="make a new one with `holdfast init --encrypt`, and `holdfast copy` into it",
        )
    if backend.slots():
        raise Conflict(f"the store at {backend.url} is encrypted already")
    data_key = random.token_bytes(DATA_KEY_SIZE)
    add(backend, data_key, secret, cost, name=FIRST)
    return data_key


def unlock(backend: Backend, offered: Sequence[Secret]) -> tuple[bytes, str]:
    """The data key, and the slot that gave it. Raises Denied when no secret fits."""
    check = _declared(backend)
    first = None
    for data_key, name in candidates(backend, offered):
        first = first or (data_key, name)
        if not check or AesCipher(data_key).check == check:
            return data_key, name
    assert first is not None  # or Denied was raised
    return first


def candidates(backend: Backend, offered: Sequence[Secret]) -> Iterator[tuple[bytes, str]]:
    """What the secrets open: data keys, and the slots that gave them. Raises Denied when there is
    none.

    There is more than one key where two processes have made the same store, each with a slot of its
    own: then the log tells which one it is encrypted with.
    """
    slots, damage = _readable(backend)
    fits = False
    for secret in offered:
        for name, slot in slots.items():
            if slot.kind == secret.kind:
                data_key = _unwrap(slot, name, backend.store_id, secret)
                if data_key is not None:
                    fits = True
                    yield data_key, name
    if fits:
        return
    if damage is not None and not slots:
        raise damage
    raise _refusal(backend, {slot.kind for slot in slots.values()}, offered)


def _declared(backend: Backend) -> bytes:
    """What the log says that its data key is known by; empty where it says nothing yet."""
    for frame in backend.entries(0).frames:
        with suppress(Corrupt, Unsupported):
            if isinstance(entry := decode_entry(frame.header), Encrypted):
                return entry.check
    return b""


def add(
    backend: Backend, data_key: bytes, secret: Secret, cost: int = COST, name: str | None = None
) -> str:
    """Wrap the data key by one more secret; gives the slot's name, a random one by default."""
    name = name or random.token_hex(8)
    scrypt = secret.kind == "passphrase"
    slot = Slot(
        kind=secret.kind,
        created=moment.to_text(moment.now()),
        salt=random.token_hex(16),
        n=cost if scrypt else 0,
        r=_R if scrypt else 0,
        p=_P if scrypt else 0,
        nonce=random.token_hex(12),
    )
    aes, _ = load_aes()
    bound = slot.bound(name, backend.store_id)
    wrapped = aes(_wrapping_key(slot, secret)).encrypt(bytes.fromhex(slot.nonce), data_key, bound)
    slot = msgspec.structs.replace(slot, wrapped=wrapped.hex())
    backend.put_slot(name, msgspec.json.format(msgspec.json.encode(slot)) + b"\n")
    return name


def remove(backend: Backend, name: str) -> str:
    """Take a slot away, by how its name begins: its secret opens the store no more. The last one
    stays. Gives its name."""
    names = backend.slots().keys()
    found = [each for each in names if each.startswith(name)] if name else []
    if len(found) != 1:
        raise NotFound(
            f"there is no key slot {name!r}" if not found else f"{name!r} could be several slots",
            hint="`holdfast key slots` shows them",
        )
    if len(names) == 1:
        raise Conflict(
            "this is the last key slot; without it nothing could be read any more",
            hint="add another one first, with `holdfast key add`",
        )
    backend.remove_slot(found[0])
    return found[0]


def new_key_file(path: Path, disk: Disk | None = None) -> Secret:
    """Make a key file that nobody else can read, durable before anything is encrypted with it;
    raises Conflict when there is a file."""
    disk = disk or Disk()
    value = random.token_bytes(SECRET_SIZE)
    try:
        fd = create(path)
    except FileExistsError:
        raise Conflict(f"{path} exists already", hint="name another file") from None
    except OSError as error:
        raise from_os_error(error, "making a key file") from error
    try:
        with os.fdopen(fd, "w") as file:
            file.write(value.hex() + "\n")
            file.flush()
            disk.sync_file(file.fileno(), "key file data")
        with suppress(PermissionError):  # where one may add files, but not look
            disk.sync_directory(path.parent, "key file name")
    except OSError as error:
        # Half a key opens nothing, and would be in the way of the next try.
        with suppress(OSError):
            path.unlink()
        raise from_os_error(error, "making a key file") from error
    return Secret("file", value)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_FILE)
    except FileNotFoundError:
        raise NotFound(
            f"there is no file {path}", hint="it is to hold the secret of an encrypted store"
        ) from None
    except IsADirectoryError:
        raise BadInput(f"{path} is a directory, not a file with a secret") from None
    except OSError as error:
        raise from_os_error(error, "reading a secret") from error


def _readable(backend: Backend) -> tuple[dict[str, Slot], Corrupt | None]:
    """The slots that make sense: a damaged one must not shut out whoever has another."""
    slots: dict[str, Slot] = {}
    damage: Corrupt | None = None
    for name, data in sorted(backend.slots().items()):
        try:
            slots[name] = _decode(name, data)
        except Corrupt as error:
            damage = error
    return slots, damage


def _decode(name: str, data: bytes) -> Slot:
    try:
        slot = msgspec.json.decode(data, type=Slot)
        sizes = [len(bytes.fromhex(text)) for text in (slot.salt, slot.nonce, slot.wrapped)]
    except (msgspec.MsgspecError, ValueError) as error:
        raise Corrupt(f"key slot {name} cannot be read: {error}", where=f"keys/{name}") from None
    scrypt = slot.n > 1 and not slot.n & (slot.n - 1) and slot.r > 0 and 0 < slot.p <= 16
    good = slot.kind == "file" or (scrypt and 128 * slot.n * slot.r <= _MEMORY)
    if sizes != [16, 12, DATA_KEY_SIZE + 16] or slot.version != VERSION or not good:
        raise Corrupt(f"key slot {name} makes no sense", where=f"keys/{name}")
    return slot


def _unwrap(slot: Slot, name: str, store_id: str, secret: Secret) -> bytes | None:
    aes, failure = load_aes()
    try:
        return aes(_wrapping_key(slot, secret)).decrypt(
            bytes.fromhex(slot.nonce), bytes.fromhex(slot.wrapped), slot.bound(name, store_id)
        )
    except failure:
        return None


def _wrapping_key(slot: Slot, secret: Secret) -> bytes:
    salt = bytes.fromhex(slot.salt)
    if secret.kind == "file":
        return blake3(secret.value + salt, derive_key_context=_FILE_CONTEXT).digest()
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=32, n=slot.n, r=slot.r, p=slot.p).derive(secret.value)


def _refusal(backend: Backend, kinds: set[Kind], offered: Sequence[Secret]) -> Denied:
    if offered:
        tried = " or ".join(
            {"passphrase": "the passphrase", "file": "the key file"}[kind]
            for kind in dict.fromkeys(secret.kind for secret in offered)
        )
        return Denied(
            f"{tried} does not open the store at {backend.url}",
            hint="check for typing errors; `holdfast key slots` shows what opens it",
        )
    ways = {
        "passphrase": "set HOLDFAST_PASSPHRASE or HOLDFAST_PASSPHRASE_FILE",
        "file": "set HOLDFAST_ENCRYPTION_KEY_FILE",
    }
    hint = ", or ".join(ways[kind] for kind in sorted(kinds, reverse=True))
    return Denied(f"the store at {backend.url} is encrypted", hint=hint)
