"""A bucket: objects by key. Every request to an object store goes through here.

What may pass is tried again, with growing pauses, for as long as the bucket has patience; what
will not pass is said in Holdfast's words.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from obstore import exceptions

from holdfast.model.errors import BadInput, Corrupt, Denied, HoldfastError, NotFound, Unsupported
from holdfast.store.backends.traffic import Traffic

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PATIENCE = 60.0  # seconds for which a request is tried again
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_PART = 8 * 1024 * 1024  # bytes of an upload's part
_AT_ONCE = 16  # requests

# The server understood and will not: all of 4xx but "timeout", "conflict" and "slow down".
_REFUSED = re.compile(r"status code: 4(?!08|09|29)\d\d")

# Whatever a request can end in, apart from what is asked for.
_ERRORS = (exceptions.BaseError, OSError, ValueError)

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Listed:
    """An object as a listing shows it."""

    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of an object, and how many it has in all."""

    data: bytes
    total: int


_process: int | None = None  # the one whose threads carry the requests


def _check_process() -> None:
    """The client's threads do not survive a fork; a request without them would wait for ever."""
    global _process
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        raise Unsupported(
            "an object store was in use before this process was forked, and cannot be used after",
            hint="start processes with multiprocessing's spawn, or open no store before the fork",
        )


class Bucket:
    """A prefix of an object store. Thread-safe."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        quick: ObjectStore | None = None,
        patience: float = PATIENCE,
        traffic: Traffic | None = None,
    ) -> None:
        """`quick` is the same store for requests that are answered soon or not at all."""
        self._store: Any = store  # obstore's functions take each kind of store in an overload
        self._quick = quick or store
        self._patience = patience
        self.traffic = traffic or Traffic()
        self._counts_from_end = True

    def hurried(self, patience: float) -> Bucket:
        """The same for whoever cannot wait long."""
        return Bucket(self._quick, patience=patience, traffic=self.traffic)

    def get(self, key: str) -> bytes | None:
        """A whole object, if there is one."""
        piece = self._get(key, None)
        return None if piece is None else piece.data

    def beginning(self, key: str, size: int) -> Piece | None:
        """An object's first bytes, at most `size`; it must not be empty."""
        return self._get(key, {"range": (0, size)})

    def end(self, key: str, size: int) -> Piece | None:
        """An object's last bytes, at most `size`; it must not be empty."""
        if self._counts_from_end:
            try:
                return self._get(key, {"range": {"suffix": size}})
            except Unsupported:
                self._counts_from_end = False  # Azure: there it takes a request more
        total = self.size(key)
        if total is None:
            return None
        return self._get(key, {"range": (max(0, total - size), total)})

    def read(self, key: str, offset: int, size: int) -> bytes:
        """Exactly these bytes; raises NotFound or Corrupt."""
        piece = self._get(key, {"range": (offset, offset + size)})
        if piece is None:
            raise NotFound(f"{key} is not in this store")
        if len(piece.data) != size:
            raise Corrupt(f"{key} ends before byte {offset + size}", where=key)
        return piece.data

    def put(self, key: str, data: bytes) -> None:
        """Write an object, over another one if there is one."""
        self._persist(key, lambda: obstore.put(self._store, key, data, use_multipart=False))
        self.traffic.count(sent=len(data))

    def upload(self, key: str, path: Path) -> None:
        """Write a file's bytes, in several parts at once where it is large."""
        self._persist(key, lambda: obstore.put(self._store, key, path, chunk_size=_PART))
        self.traffic.count(sent=path.stat().st_size)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object unless there is one. False: there is another one. The data must be
        unique, so that ours can be told from anybody else's when a reply was lost."""
        _check_process()
        deadline = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                obstore.put(self._store, key, data, mode="create", use_multipart=False)
                self.traffic.count(sent=len(data))
                return True
            except exceptions.AlreadyExistsError:
                # Perhaps our own: of a try whose reply was lost on the way.
                return self.get(key) == data
            except _ERRORS as error:
                if not _may_pass(error) or time.monotonic() > deadline:
                    raise _translated(error, key) from None
                found = self.get(key)
                if found is not None:
                    return found == data
                pause = _wait(pause)

    def overwrites(self, key: str, data: bytes) -> bool:
        """Whether the store ignores conditions. The data must be what the object has already."""
        try:
            obstore.put(self._store, key, data, mode="create", use_multipart=False)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            return False
        except exceptions.NotSupportedError:
            return True
        except _ERRORS as error:
            raise _translated(error, key) from None
        return True

    def delete(self, keys: str | Sequence[str]) -> None:
        """Delete objects; those that are gone already do not matter (S3 does not even say so)."""
        for key in [keys] if isinstance(keys, str) else keys:
            self._persist(key, lambda key=key: _or_none(lambda: obstore.delete(self._store, key)))  # type: ignore[misc]
            self.traffic.count()

    def size(self, key: str) -> int | None:
        """How many bytes an object has, if there is one."""
        found = self._persist(key, lambda: _or_none(lambda: obstore.head(self._store, key)))
        self.traffic.count()
        return None if found is None else int(found["size"])

    def listed(self, prefix: str, after: str | None = None) -> list[Listed]:
        """The objects in a folder, sorted by key; those behind `after` if it is given."""

        def fetch() -> list[Listed]:
            found = [
                Listed(meta["path"], meta["size"], meta["last_modified"])
                for batch in obstore.list(self._store, prefix=prefix, offset=after)
                for meta in batch
            ]
            return sorted(found, key=lambda one: one.key)

        found = self._persist(prefix, fetch)
        self.traffic.count()
        return found

    def many(self, act: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do something for many keys, several at once; results in order."""
        items = list(items)
        if len(items) < 2:
            return [act(item) for item in items]
        with ThreadPoolExecutor(min(_AT_ONCE, len(items)), "holdfast-transfer") as pool:
            return list(pool.map(act, items))

    def _get(self, key: str, options: Any) -> Piece | None:
        def fetch() -> Piece | None:
            result = obstore.get(self._store, key, options=options)
            return Piece(bytes(result.bytes()), int(result.meta["size"]))

        try:
            piece = self._persist(key, lambda: _or_none(fetch))
        except _PastEnd:
            raise Corrupt(f"{key} is shorter than it must be", where=key) from None
        self.traffic.count(received=len(piece.data) if piece else 0)
        return piece

    def _persist(self, key: str, act: Callable[[], T]) -> T:
        """Do it, again and again where it may help."""
        _check_process()
        deadline = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                return act()
            except _ERRORS as error:
                if not _may_pass(error) or time.monotonic() > deadline:
                    raise _translated(error, key) from None
                pause = _wait(pause)


class _PastEnd(Exception):
    """A range that begins behind an object's end."""


def _or_none(act: Callable[[], T]) -> T | None:
    try:
        return act()
    except FileNotFoundError:
        return None


def _wait(pause: float) -> float:
    time.sleep(pause * random.uniform(0.5, 1.5))
    return min(pause * 2, _LONGEST_PAUSE)


def _may_pass(error: Exception) -> bool:
    """Whether the same request may succeed later: the network, a busy or a restarting server."""
    if not isinstance(error, exceptions.GenericError | TimeoutError | ConnectionError):
        return False
    text = str(error)
    return not (_is_past_end(text) or _REFUSED.search(text))


def _is_past_end(text: str) -> bool:
    return "status code: 416" in text or "Invalid range" in text


def _translated(error: Exception, key: str) -> Exception:
    text = str(error).partition("\n")[0]
    match error:
        case HoldfastError():
            return error
        case exceptions.PermissionDeniedError() | exceptions.UnauthenticatedError():
            return Denied(
                f"the object store refuses {key}: {text}",
                hint="check the credentials, and what they may do in this bucket",
            )
        case FileNotFoundError():
            return NotFound(f"{key} is not there: {text}", hint="does the bucket exist?")
        case exceptions.NotSupportedError():
            return Unsupported(f"the object store cannot do this: {text}")
        case exceptions.InvalidPathError() | exceptions.UnknownConfigurationKeyError():
            return BadInput(text)
        case exceptions.GenericError() if _is_past_end(str(error)):
            return _PastEnd()
    return HoldfastError(
        f"the object store does not answer ({key}): {text}",
        hint="check the endpoint and the network; nothing that was committed is lost",
    )
