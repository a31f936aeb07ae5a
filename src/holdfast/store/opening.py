"""Opening: from what somebody writes as a store's address to a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.model.errors import BadInput, Unsupported
from holdfast.model.home import default_store_url
from holdfast.store.backends.contract import Backend
from holdfast.store.backends.local import LocalBackend
from holdfast.store.backends.memory import MemoryBackend
from holdfast.store.keys import Keyring, load_keyring
from holdfast.store.store import Store


def open_store(
    url: str | os.PathLike[str] | None = None,
    *,
    create: bool = True,
    keyring: Keyring | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Store:
    """Open a store: a directory, `file://...`, `memory://`, or an object store at `s3://...`,
    `gs://...` or `az://...`; by default HOLDFAST_STORE.

    Raises NotFound when `create` is false and there is none, Denied, Corrupt or Unsupported.
    """
    address = os.fspath(url) if url is not None else default_store_url(environ)
    backend = open_backend(address, create=create, environ=environ)
    return Store(backend, keyring or load_keyring(environ))


def open_backend(
    address: str, *, create: bool = True, environ: Mapping[str, str] = os.environ
) -> Backend:
    """The place that an address names."""
    if not address:
        raise BadInput("an empty store address", hint="give a directory or memory://")
    try:
        if "://" not in address:
            return LocalBackend(Path(address).expanduser().absolute(), create=create)
        parts = urlsplit(address)
    except (ValueError, RuntimeError) as error:  # a NUL, a bad host; no such user's home
        raise BadInput(f"not a store address: {address!r} ({error})") from None
    if parts.scheme == "memory":
        return MemoryBackend(parts.netloc)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise BadInput(
                f"{address!r} names another machine", hint="file:///path has three slashes"
            )
        return LocalBackend(Path(unquote(parts.path)), create=create)
    if parts.scheme in ("s3", "gs", "az"):
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
