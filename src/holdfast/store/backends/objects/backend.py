"""A bucket as a store's place (spec/store-v1.md, section 11)."""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from holdfast.model.errors import Conflict, Corrupt, HoldfastError, NotFound, Unsupported
from holdfast.store.backends import marker
from holdfast.store.backends.contract import Hold, Pulse, Tail, VolumeInfo
from holdfast.store.backends.objects import layout
from holdfast.store.backends.objects.bucket import Bucket
from holdfast.store.backends.objects.cache import Cache
from holdfast.store.backends.objects.log import BUNDLE, ObjectLog
from holdfast.store.backends.objects.presence import LIFETIME, RENEWAL, Presence
from holdfast.store.backends.packdraft import PackDraft
from holdfast.store.backends.traffic import Traffic
from holdfast.store.log.frames import Damage, Frame, Signed

PACK_LIMIT = 32 * 1024 * 1024
_TAIL = 64 * 1024  # bytes of a pack that are read first: its table, nearly always
_TAILS = 256  # packs whose tails stay in memory
_COUNTED = 4096  # packs whose reads are counted
_READS = 4  # of a pack one by one; then it is worth fetching whole
_FAR = 1 << 62
_FIRST = 5.0  # seconds of patience for the first answer
_HURRY = 3.0  # seconds of patience for a sign of life, which is late soon

OpenBucket = Callable[[], Bucket]
T = TypeVar("T")


class ObjectPack(PackDraft):
    """A pack being written, in the cache; publishing it is uploading it."""

    def __init__(self, backend: ObjectBackend, name: bytes) -> None:
        super().__init__(backend.cache.spool())
        self._backend = backend
        self._name = name

    def publish(self) -> None:
        key = layout.pack_key(self._name)
        # By the file itself, not by its name: somebody may have cleared the cache meanwhile.
        self._backend.bucket.upload(key, Path(f"/proc/self/fd/{self._fd}"))
        self._backend.cache.adopt(self._path, key)
        self._close()


class Originals:
    """The volumes in the bucket. The last object is kept, since its neighbours are asked for."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._key = ""
        self._data = b""

    def read(self, volume: bytes, offset: int, size: int) -> bytes:
        first = layout.segment_first(volume)
        key = layout.pack_key(volume)
        if first is not None:
            seq, offset = layout.place_in_segment(first, offset)
            key = layout.entry_key(seq)
        if key != self._key:
            data = self._bucket.get(key)
            if data is None or data == layout.TRIMMED:
                raise NotFound(f"{key} is not in this store")
            self._key, self._data = key, data
        found = self._data[offset : offset + size]
        if len(found) != size:
            raise Corrupt(f"{key} ends before byte {offset + size}", where=key)
        return found


class Mutex:
    """A lock that can be forgotten when nobody has it."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Latest(Generic[T]):
    """What is known of the volumes that were used last, so many at most. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, volume: bytes) -> T | None:
        with self._lock:
            if volume not in self._kept:
                return None
            self._kept.move_to_end(volume)
            return self._kept[volume]

    def put(self, volume: bytes, value: T) -> None:
        with self._lock:
            self._kept[volume] = value
            self._kept.move_to_end(volume)
            if len(self._kept) > self._limit:
                self._kept.popitem(last=False)

    def drop(self, volume: bytes) -> None:
        with self._lock:
            self._kept.pop(volume, None)


class ObjectBeat:
    """A sign of life as an object that its owner writes over."""

    def __init__(self, bucket: Bucket, name: bytes) -> None:
        self._bucket = bucket
        self._key = layout.beat_key(name)
        self._stopped = False
        self.renew()

    def renew(self) -> None:
        self._bucket.put(self._key, secrets.token_bytes(16))

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            with suppress(HoldfastError):  # whoever finds it unchanged removes it
                self._bucket.delete(self._key)


def _take_back(presence: Presence, process: int) -> None:
    if process == os.getpid():  # in a forked child it is the parent's
        presence.close()


class ObjectBackend:
    """A store in a bucket, with a cache on this machine."""

    pack_limit = PACK_LIMIT
    transfers = 4  # packs that are sent at the same time

    def __init__(
        self,
        url: str,
        open_bucket: OpenBucket,
        open_cache: Callable[[str], Cache],
        *,
        create: bool = True,
        bundle: int = BUNDLE,
        linger: float = RENEWAL,
        lifetime: float = LIFETIME,
    ) -> None:
        """Open the store there, or make it. The cache is opened for the store's id."""
        self.url = url
        self.bucket = open_bucket()
        self._marker = self._read_or_make_marker(create)
        self.store_id = marker.decode(self._marker, url)
        self.cache = open_cache(self.store_id)
        self._lock = threading.RLock()
        self._log = ObjectLog(self.bucket, self.cache, bundle)
        self._presence = Presence(self.bucket.hurried(_HURRY), linger, lifetime)
        self._conditions: bool | None = None  # whether the store honours them, once that is known
        self._tails: Latest[tuple[int, bytes]] = Latest(_TAILS)
        self._reads: Latest[int] = Latest(_COUNTED)
        # Gone when nobody waits any more.
        self._fetching: weakref.WeakValueDictionary[bytes, Mutex] = weakref.WeakValueDictionary()
        # Who forgets to close a store should not keep others waiting.
        self._farewell = weakref.finalize(self, _take_back, self._presence, os.getpid())

        def reopen() -> ObjectBackend:
            return ObjectBackend(
                url,
                open_bucket,
                open_cache,
                create=False,
                bundle=bundle,
                linger=linger,
                lifetime=lifetime,
            )

        self.reopened = reopen

    @property
    def traffic(self) -> Traffic:
        return self.bucket.traffic

    # -- the log

    def entries(self, after: int) -> Tail:
        with self._lock:
            return self._log.entries(after)

    def audit(self) -> list[Damage]:
        with self._lock:
            return self._log.audit()

    def append(self, signed: Signed) -> Frame:
        with self._lock:
            self._check_conditions()
            return self._log.append(signed)

    def seal(self) -> list[bytes]:
        with self._lock:
            return self._log.seal()

    def settle(self) -> None:
        """An object that can be read is durable."""

    def compact(self, upto: Signed, frames: Iterable[Frame]) -> int:
        with self._lock:
            return self._log.compact(upto, frames)

    def trim(self, before: int, needed: Set[bytes]) -> int:
        oldest = self.oldest_hold()
        if oldest is not None and oldest < before:
            return 0
        with self._lock:
            return self._log.trim(before, needed)

    # -- volumes

    def volumes(self) -> list[VolumeInfo]:
        packs = [
            VolumeInfo(name, one.size, True)
            for one in self.bucket.listed("packs")
            if (name := layout.pack_name(one.key)) is not None
        ]
        with self._lock:
            return packs + self._log.volumes()

    def create_pack(self, name: bytes) -> ObjectPack:
        return ObjectPack(self, name)

    def originals(self) -> Originals:
        return Originals(self.bucket)

    def pack_size(self, volume: bytes) -> int | None:
        if layout.segment_first(volume) is not None:
            return None
        path = self.cache.path(layout.pack_key(volume))
        if path is not None:
            with suppress(OSError):
                return path.stat().st_size
        tail = self._tail(volume)
        return tail[0] if tail else None

    def read(self, volume: bytes, offset: int, size: int) -> bytes:
        if offset + size >= _FAR:
            raise Corrupt(f"nothing is at byte {offset}", where=volume.hex())
        first = layout.segment_first(volume)
        if first is not None:
            return self._log.read(first, offset, size)
        found = self._read_here(volume, offset, size)
        if found is not None:
            return found
        tail = self._tails.get(volume)
        if tail is not None and offset >= (start := tail[0] - len(tail[1])):
            found = tail[1][offset - start : offset - start + size]
            if len(found) == size:
                return found
        count = (self._reads.get(volume) or 0) + 1
        self._reads.put(volume, count)
        if count > _READS and self._fetch(volume) is not None:
            found = self._read_here(volume, offset, size)
            if found is not None:
                return found
        if not size:
            return b""
        return self.bucket.read(layout.pack_key(volume), offset, size)

    def path(self, volume: bytes) -> Path | None:
        """The pack in the cache, fetched if need be: what is mapped must be a file."""
        if layout.segment_first(volume) is not None:
            return None
        return self._fetch(volume)

    def distrust(self, volume: bytes, offset: int) -> bool:
        first = layout.segment_first(volume)
        if first is not None:
            self._log.forget(first, offset)
        else:
            self._tails.drop(volume)
            self.cache.drop(f"tails/{volume.hex()}")
            self.cache.drop(layout.pack_key(volume))
        # Also when nothing was there: another thread may have read the same copy and dropped it.
        return True

    def delete(self, volume: bytes) -> int:
        key = layout.pack_key(volume)
        size = self.bucket.size(key) or 0
        self.bucket.delete(key)
        self.cache.drop(key)
        self.cache.drop(f"tails/{volume.hex()}")
        self._tails.drop(volume)
        self._reads.drop(volume)
        return size

    # -- holds and leases

    def hold(self, seq: int) -> Hold:
        return self._presence.hold(seq)

    def oldest_hold(self) -> int | None:
        return self._presence.oldest()

    def active_nonces(self) -> set[bytes]:
        return self._presence.active()

    def beat(self, name: bytes) -> ObjectBeat:
        self._check_conditions()
        return ObjectBeat(self.bucket.hurried(_HURRY), name)

    def end_beat(self, name: bytes) -> None:
        self.bucket.delete(layout.beat_key(name))

    def pulse(self, name: bytes) -> Pulse | None:
        nonce = self.bucket.get(layout.beat_key(name))
        return Pulse(nonce, vouched=False) if nonce is not None else None

    # -- key slots

    def slots(self) -> dict[str, bytes]:
        keys = [one.key for one in self.bucket.listed("keys") if layout.slot_name(one.key)]
        found = zip(keys, self.bucket.many(self.bucket.get, keys), strict=True)
        return {layout.slot_name(key) or "": data for key, data in found if data is not None}

    def put_slot(self, name: str, data: bytes) -> None:
        self._check_conditions()
        if not self.bucket.create(layout.slot_key(name), data):
            raise Conflict(f"there is a key slot {name} already")

    def remove_slot(self, name: str) -> None:
        self.bucket.delete(layout.slot_key(name))

    # -- the rest

    def free_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        self._farewell()

    def _check_conditions(self) -> None:
        """Refuse to write where two writers would write over each other's entries."""
        if self._conditions is None:
            self._conditions = not self.bucket.overwrites(marker.NAME, self._marker)
        if not self._conditions:
            raise Unsupported(
                f"{self.url} ignores conditions (If-None-Match), so writers and owners could not be"
                " kept apart: nothing is written there, and no lease is taken",
                hint="use an object store that honours conditional writes, or a directory",
            )

    def _read_or_make_marker(self, create: bool) -> bytes:
        # A wrong address is the likeliest reason for silence here: nobody should wait long for it.
        data = self.bucket.hurried(_FIRST).get(marker.NAME)
        if data is None:
            if not create:
                raise marker.missing(self.url)
            self.bucket.create(marker.NAME, marker.encode_new())
            data = self.bucket.get(marker.NAME)  # ours, or that of somebody who was faster
            if data is None:
                raise NotFound(f"the store at {self.url} was made and is gone again")
        return data

    def _read_here(self, volume: bytes, offset: int, size: int) -> bytes | None:
        """Bytes of a pack that is in the cache."""
        path = self.cache.path(layout.pack_key(volume))
        if path is None:
            return None
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            data = os.pread(fd, size, offset)
        finally:
            os.close(fd)
        if len(data) != size:
            raise Corrupt(f"the volume ends before byte {offset + size}", where=volume.hex())
        return data

    def _fetch(self, volume: bytes) -> Path | None:
        """Have a pack in the cache."""
        key = layout.pack_key(volume)
        with self._lock:
            mutex = self._fetching.setdefault(volume, Mutex())
        with mutex.lock:  # of several who want it, one fetches it
            path = self.cache.path(key)
            if path is not None:
                return path
            data = self.bucket.get(key)
            if data is None:
                return None
            self.cache.add(key, data)
            return self.cache.path(key)

    def _tail(self, volume: bytes) -> tuple[int, bytes] | None:
        """A pack's size and its last bytes, from the cache if they are there."""
        found = self._tails.get(volume)
        if found is None:
            key = f"tails/{volume.hex()}"
            kept = self.cache.read(key)
            if kept is not None and len(kept) > 8:
                found = int.from_bytes(kept[:8], "little"), kept[8:]
            else:
                piece = self.bucket.end(layout.pack_key(volume), _TAIL)
                if piece is None:
                    return None
                found = piece.total, piece.data
                self.cache.add(key, piece.total.to_bytes(8, "little") + piece.data)
            self._tails.put(volume, found)
        return found
