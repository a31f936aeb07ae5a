"""Opening: from what somebody writes as a store's address to a store."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.model.errors import BadInput, Conflict, Denied, Unsupported, UsageError
from holdfast.model.files import Exposure, exposure
from holdfast.model.home import default_store_url, home
from holdfast.store import slots
from holdfast.store.backends.contract import Backend
from holdfast.store.backends.local import directory
from holdfast.store.backends.local.backend import LocalBackend
from holdfast.store.backends.memory import MemoryBackend
from holdfast.store.cipher import PLAIN, AesCipher, Cipher
from holdfast.store.copies import Copies
from holdfast.store.keys import Keyring, load_keyring
from holdfast.store.prints import Prints
from holdfast.store.slots import Secret
from holdfast.store.store import Store

Ask = Callable[[bool], Secret | None]  # told whether the secret is a new one

log = logging.getLogger("holdfast.store")

_warned: set[Path] = set()
_OBJECTS = ("s3", "gs", "az")
_SCHEMES = ("file", "memory", *_OBJECTS)


def open_store(
    url: str | os.PathLike[str] | None = None,
    *,
    create: bool = True,
    encrypt: bool = False,
    shared: bool = False,
    passphrase: str | None = None,
    key_file: str | os.PathLike[str] | None = None,
    secret: Secret | None = None,
    ask: Ask | None = None,
    keyring: Keyring | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Store:
    """Open a store: a directory, `file://...`, `memory://`, or an object store at `s3://...`,
    `gs://...` or `az://...`; by default HOLDFAST_STORE.

    A new one in a directory is for its user alone, or, with `shared`, for its group, too. With
    `encrypt` a new one is made an encrypted one. An encrypted one is opened by a passphrase or
    a key file: those given, else those that HOLDFAST_PASSPHRASE, HOLDFAST_PASSPHRASE_FILE or
    HOLDFAST_ENCRYPTION_KEY_FILE tell, else what `ask` gives. What others can open of a store in a
    directory, or of the key, is logged as a warning, with the command that mends it.

    Raises NotFound when `create` is false and there is none, Conflict when it is to be shared and
    is there already for its user alone, Denied, Corrupt or Unsupported.
    """
    address = os.fspath(url) if url is not None else default_store_url(environ)
    given = [] if secret is None else [secret]
    if passphrase is not None:
        given.append(Secret.passphrase(passphrase))
    if key_file is not None:
        given.append(Secret.key_file(Path(key_file)))
    backend = open_backend(address, create=create, shared=shared, environ=environ)
    try:
        _warn_of_exposure(backend, environ)
        keys = keyring or load_keyring(environ)
        kept = not isinstance(backend, MemoryBackend)
        copies, prints = (
            home(environ) / what / backend.store_id if kept else None
            for what in ("copies", "prints")
        )
        store, failure = None, None
        for cipher in _ciphers(backend, given, encrypt, ask, environ):
            aids = Copies(copies, keys, cipher), Prints(prints, keys, cipher)
            try:
                store = Store(backend, keys, cipher, *aids)
                break
            except Denied as error:  # the log is encrypted with the key of another slot
                failure = failure or error
        if store is None:
            raise failure or Denied(f"nothing opens the store at {backend.url}")
        if encrypt:
            store.declare()
        return store
    except BaseException:
        backend.close()
        raise


def exposures(backend: Backend, environ: Mapping[str, str] = os.environ) -> list[Exposure]:
    """What others than their user can open of a store in a directory and of the signing key."""
    found = [directory.exposure(backend.root)] if isinstance(backend, LocalBackend) else []
    named = environ.get("HOLDFAST_KEY_FILE")
    found.append(exposure(Path(named) if named else home(environ) / "key"))
    return [one for one in found if one is not None]


def _warn_of_exposure(backend: Backend, environ: Mapping[str, str]) -> None:
    for found in exposures(backend, environ):
        if found.path not in _warned:  # once a process
            _warned.add(found.path)
            log.warning("%s; `%s` mends it", found, found.mends)


def secrets_of(environ: Mapping[str, str]) -> list[Secret]:
    """The secrets that the environment names."""
    found = []
    if text := environ.get("HOLDFAST_PASSPHRASE"):
        found.append(Secret.passphrase(text))
    elif path := environ.get("HOLDFAST_PASSPHRASE_FILE"):
        found.append(Secret.passphrase_file(Path(path).expanduser()))
    if path := environ.get("HOLDFAST_ENCRYPTION_KEY_FILE"):
        found.append(Secret.key_file(Path(path).expanduser()))
    return found


def _ciphers(
    backend: Backend,
    given: list[Secret],
    encrypt: bool,
    ask: Ask | None,
    environ: Mapping[str, str],
) -> Iterator[Cipher]:
    """What a store is read and written with; several where only the log can tell."""
    encrypted = slots.is_encrypted(backend)
    if not encrypted and not encrypt:
        if given:
            raise BadInput(
                f"the store at {backend.url} is not encrypted", hint="open it without a secret"
            )
        yield PLAIN
        return
    offered = given or secrets_of(environ)
    if not offered and ask is not None and (asked := ask(not encrypted)) is not None:
        offered = [asked]
    if encrypted:
        yield from _openings(backend, offered)
        return
    if not offered:
        raise UsageError(
            "an encrypted store needs a passphrase or a key file",
            hint="set HOLDFAST_PASSPHRASE, or name a key file",
        )
    try:
        data_key = slots.begin(backend, offered[0])
    except Conflict:
        if not slots.is_encrypted(backend):
            raise
        yield from _openings(backend, offered)  # another process made it just now
        return
    for more in offered[1:]:
        slots.add(backend, data_key, more)
    yield AesCipher(data_key)


def _openings(backend: Backend, offered: list[Secret]) -> Iterator[Cipher]:
    for data_key, _ in slots.candidates(backend, offered):
        yield AesCipher(data_key)


def open_backend(
    address: str,
    *,
    create: bool = True,
    shared: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Backend:
    """The place that an address names."""
    if not address:
        raise BadInput("an empty store address", hint="give a directory or memory://")
    if (scheme := address.partition(":/")[0]) in _SCHEMES and "://" not in address:
        raise BadInput(
            f"not a store address: {address!r}",
            hint=f"a URL needs //: {scheme}://...; for a folder of that name, write ./{scheme}:",
        )
    try:
        if "://" not in address:
            place = Path(address).expanduser().absolute()
            return LocalBackend(place, create=create, shared=shared)
        parts = urlsplit(address)
    except (ValueError, RuntimeError) as error:  # a NUL, a bad host; no such user's home
        raise BadInput(f"not a store address: {address!r} ({error})") from None
    if shared and parts.scheme != "file":
        raise BadInput(
            "only a store in a directory can be shared with a group",
            hint="who may use a bucket is said by the bucket's own policy",
        )
    if parts.scheme == "memory":
        return MemoryBackend(parts.netloc)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise BadInput(
                f"{address!r} names another machine", hint="file:///path has three slashes"
            )
        return LocalBackend(Path(unquote(parts.path)), create=create, shared=shared)
    if parts.scheme in _OBJECTS:
        return _open_objects(address, create, environ)
    raise Unsupported(
        f"stores of the kind {parts.scheme}:// are not supported",
        hint="use a directory, s3://, gs://, az:// or memory://",
    )


def _open_objects(address: str, create: bool, environ: Mapping[str, str]) -> Backend:
    try:
        from holdfast.store.backends.objects.address import open_objects
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        raise Unsupported(
            "object stores need the package obstore, which is not installed",
            hint="pip install 'holdfast[s3]'",
        ) from None
    return open_objects(address, environ, create=create)
