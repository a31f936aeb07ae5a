"""A store in memory: for tests, scratch work, and checkpoints that need not outlive the process."""

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Iterable, Sequence, Set
from pathlib import Path

from msgspec.structs import replace

from holdfast.model.errors import Conflict, Corrupt, NotFound
from holdfast.store.backends.contract import Behind, Buffer, Pulse, Tail, VolumeInfo, Volumes
from holdfast.store.log.frames import Damage, Frame, Signed

_SEGMENT = 64 * 1024 * 1024


class MemoryHold:
    refusal = None

    def __init__(self, backend: MemoryBackend, seq: int) -> None:
        self.nonce = secrets.token_bytes(8)
        self.seq = seq
        self._backend = backend

    def release(self) -> None:
        self._backend._release(self)


class MemoryBeat:
    def __init__(self, beats: dict[bytes, bytes], name: bytes) -> None:
        self._beats = beats
        self._name = name
        self.renew()

    def renew(self) -> None:
        self._beats[self._name] = secrets.token_bytes(16)

    def stop(self) -> None:
        self._beats.pop(self._name, None)


class MemoryPack:
    def __init__(self, backend: MemoryBackend, name: bytes) -> None:
        self._backend = backend
        self._name = name
        self._data = bytearray()
        self._lock = threading.Lock()

    def write_at(self, offset: int, data: Buffer) -> None:
        with self._lock:
            end = offset + len(data)
            if end > len(self._data):
                self._data.extend(bytes(end - len(self._data)))
            self._data[offset:end] = data

    def lay(self, offset: int, pieces: Sequence[Buffer]) -> None:
        self.write_at(offset, b"".join(pieces))

    def publish(self) -> None:
        self._backend._publish(self._name, bytes(self._data))
        self._data = bytearray()

    def discard(self) -> None:
        self._data = bytearray()


class MemoryBackend:
    """Everything a directory does, without a directory."""

    pack_limit = 128 * 1024 * 1024
    transfers = 2
    traffic = None

    def __init__(self, name: str = "") -> None:
        self.url = f"memory://{name}"
        self.store_id = str(uuid.uuid4())
        self._lock = threading.Lock()
        self._frames: list[Frame] = []
        self._seq = 0
        self._trimmed = 0  # entries up to here exist only in the snapshot
        self._snapshot: tuple[int, list[Frame]] = (0, [])
        self._remains: list[Frame] = []  # what the snapshot made superfluous, for their bodies
        self._segments: dict[bytes, bytearray] = {}
        self._segment = b""
        self._packs: dict[bytes, bytes] = {}
        self._holds: set[MemoryHold] = set()
        self._beats: dict[bytes, bytes] = {}
        self._slots: dict[str, bytes] = {}

    def entries(self, after: int) -> Tail:
        with self._lock:
            if after < self._trimmed:
                upto, kept = self._snapshot
                kept = [f if f.origin in self._segments else replace(f, body_size=0) for f in kept]
                frames = [*kept, *(f for f in self._frames if f.seq > upto)]
                spoken_of = {frame.seq for frame in kept}
                remains = [frame for frame in self._remains if frame.seq not in spoken_of]
                return Tail(frames, reset=True, base=upto, remains=remains)
            return Tail([frame for frame in self._frames if frame.seq > after])

    def audit(self) -> list[Damage]:
        return []

    def append(self, signed: Signed) -> Frame:
        with self._lock:
            if signed.seq != self._seq + 1:
                raise Behind
            segment = self._segments.get(self._segment)
            if segment is None or len(segment) > _SEGMENT:
                self._segment = secrets.token_bytes(16)
                segment = self._segments[self._segment] = bytearray()
            frame = Frame(
                seq=signed.seq,
                key_id=signed.key_id,
                mac=signed.mac,
                header=signed.header,
                origin=self._segment,
                body_offset=len(segment),
                body_size=len(signed.body),
            )
            segment += signed.body
            self._frames.append(frame)
            self._seq = signed.seq
            return frame

    def seal(self) -> list[bytes]:
        with self._lock:
            self._segment = b""
            return list(self._segments)

    def settle(self) -> None:
        """Memory is as durable as it gets."""

    def compact(self, upto: Signed, frames: Iterable[Frame]) -> int:
        with self._lock:
            if upto.seq >= self._snapshot[0]:  # another thread may have been faster
                self._snapshot = (upto.seq, list(frames))
            return sum(len(frame.header) for frame in self._snapshot[1])

    def trim(self, before: int, needed: Set[bytes]) -> int:
        oldest = self.oldest_hold()
        with self._lock:
            upto = self._snapshot[0]
            if upto > before or (oldest is not None and oldest < before):
                return 0
            self._remains += [frame for frame in self._frames if frame.seq <= upto]
            self._frames = [frame for frame in self._frames if frame.seq > upto]
            self._trimmed = upto
            in_use = needed | {frame.origin for frame in self._frames}
            gone = [name for name in self._segments if name not in in_use]
            freed = sum(len(self._segments.pop(name)) for name in gone)
            self._remains = [f for f in self._remains if f.origin in self._segments]
            if self._segment in gone:
                self._segment = b""
            return freed

    def volumes(self) -> list[VolumeInfo]:
        with self._lock:
            packs = [VolumeInfo(name, len(data), True) for name, data in self._packs.items()]
            logs = [VolumeInfo(name, len(data), False) for name, data in self._segments.items()]
            return packs + logs

    def create_pack(self, name: bytes) -> MemoryPack:
        return MemoryPack(self, name)

    def read(self, volume: bytes, offset: int, size: int) -> bytes:
        with self._lock:
            data = self._packs.get(volume)
            if data is None:
                data = self._segments.get(volume)  # type: ignore[assignment]
            if data is None:
                raise NotFound(f"volume {volume.hex()} is not in this store")
            found = bytes(data[offset : offset + size])
        if len(found) != size:
            raise Corrupt(f"volume {volume.hex()} ends before byte {offset + size}")
        return found

    def originals(self) -> Volumes:
        return self

    def pack_size(self, volume: bytes) -> int | None:
        with self._lock:
            data = self._packs.get(volume)
            return None if data is None else len(data)

    def distrust(self, volume: bytes, offset: int) -> bool:
        return False

    def path(self, volume: bytes) -> Path | None:
        return None

    def delete(self, volume: bytes) -> int:
        with self._lock:
            return len(self._packs.pop(volume, b""))

    def hold(self, seq: int) -> MemoryHold:
        hold = MemoryHold(self, seq)
        with self._lock:
            self._holds.add(hold)
        return hold

    def oldest_hold(self) -> int | None:
        with self._lock:
            return min((hold.seq for hold in self._holds), default=None)

    def active_nonces(self) -> set[bytes]:
        with self._lock:
            return {hold.nonce for hold in self._holds}

    def beat(self, name: bytes) -> MemoryBeat:
        return MemoryBeat(self._beats, name)

    def end_beat(self, name: bytes) -> None:
        self._beats.pop(name, None)

    def pulse(self, name: bytes) -> Pulse | None:
        nonce = self._beats.get(name)
        return Pulse(nonce, vouched=True) if nonce else None

    def slots(self) -> dict[str, bytes]:
        return dict(self._slots)

    def put_slot(self, name: str, data: bytes) -> None:
        if self._slots.setdefault(name, data) is not data:
            raise Conflict(f"there is a key slot {name} already")

    def remove_slot(self, name: str) -> None:
        self._slots.pop(name, None)

    def free_bytes(self) -> int | None:
        return None

    def reopened(self) -> MemoryBackend:
        """A store of the child's own, with what was in the parent's when they parted."""
        copy = MemoryBackend()
        copy.__dict__.update(self.__dict__, _lock=threading.Lock(), _holds=set(), _beats={})
        return copy

    def close(self) -> None:
        """Nothing to close; the content goes with the object."""

    def _release(self, hold: MemoryHold) -> None:
        with self._lock:
            self._holds.discard(hold)

    def _publish(self, name: bytes, data: bytes) -> None:
        with self._lock:
            self._packs[name] = data
