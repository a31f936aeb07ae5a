"""Entries of a layer's stream (spec/container-v1.md, "The writable layer"): values, no files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, Literal

import msgspec

from holdfast.model.errors import Corrupt

MAGIC = b"HFLAYER1"
MAX_ENTRY = 16 * 1024 * 1024
_LENGTH = struct.Struct(">I")

Type = Literal["d", "f", "l", "h", "w", "p", "s", "c", "b", "end"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing in a layer. The short names are the stream's; the properties say what they are."""

    t: Type
    p: bytes = b""
    m: int = 0
    u: int = 0
    g: int = 0
    n: int = 0
    x: dict[bytes, bytes] = {}
    o: bool = False
    b: bool = False
    r: bytes | None = None
    l: bytes = b""  # noqa: E741  the stream's name
    d: tuple[int, int] = (0, 0)
    z: int = 0
    e: tuple[tuple[int, int], ...] = ()
    k: int = 0

    @property
    def data_bytes(self) -> int:
        """How many bytes of data follow the entry."""
        return sum(length for _, length in self.e)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Entry)


def encode(entry: Entry) -> bytes:
    """An entry with its length before it."""
    body = _encoder.encode(entry)
    return _LENGTH.pack(len(body)) + body


def read_entries(stream: BinaryIO) -> Iterator[Entry]:
    """The entries of a stream up to and without `end`. Whoever takes one reads its data from the
    stream before asking for the next. Raises Corrupt for anything that is not as specified."""
    if _exactly(stream, len(MAGIC)) != MAGIC:
        raise Corrupt("not a layer of files: it does not begin like one")
    order = Order()
    while True:
        (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
        if length > MAX_ENTRY:
            raise Corrupt(f"an entry of {length} bytes in a layer of files")
        try:
            entry = _decoder.decode(_exactly(stream, length))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Corrupt(f"a broken entry in a layer of files: {error}") from None
        if entry.t == "end":
            if entry.k != order.count:
                raise Corrupt(f"a layer of {entry.k} entries has {order.count}")
            return
        order.check(entry)
        yield entry


class Order:
    """Checks that entries come as the specification says: parents first, in order, none twice."""

    def __init__(self) -> None:
        self.count = 0
        self._last: list[bytes] | None = None  # components of the path before this one
        self._folders: list[bytes] = []  # the open directories above it
        self._linkable: set[bytes] = set()

    def check(self, entry: Entry) -> None:
        """Raise Corrupt when this entry may not come now."""
        parts = entry.p.split(b"/") if entry.p else []
        if self._last is None:
            if entry.t != "d" or parts:
                raise Corrupt("a layer of files does not begin with its own directory")
        elif any(part in (b"", b".", b"..") or b"\0" in part for part in parts) or not parts:
            raise Corrupt(f"impossible path in a layer of files: {entry.p!r}")
        elif parts <= self._last:
            raise Corrupt(f"{entry.p!r} is out of order in a layer of files")
        elif parts[:-1] != self._folders[: len(parts) - 1] or len(self._folders) < len(parts) - 1:
            raise Corrupt(f"{entry.p!r} in a layer of files is in no directory of it")
        self._check_data(entry)
        if parts:
            del self._folders[len(parts) - 1 :]
            if entry.t == "d":
                self._folders.append(parts[-1])
        if entry.t == "h" and entry.l not in self._linkable:
            raise Corrupt(f"{entry.p!r} links to {entry.l!r}, which is not there")
        if entry.t not in ("d", "h", "w"):
            self._linkable.add(entry.p)
        self._last = parts
        self.count += 1

    @staticmethod
    def _check_data(entry: Entry) -> None:
        end = 0
        for offset, length in entry.e:
            if offset < end or length <= 0:
                raise Corrupt(f"{entry.p!r} has impossible runs of data")
            end = offset + length
        if end > entry.z or (entry.t != "f" and (entry.z or entry.e)):
            raise Corrupt(f"{entry.p!r} has data beyond its end")
        if not 0 <= entry.m <= 0o7777:
            raise Corrupt(f"{entry.p!r} has impossible permissions")


def _exactly(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise Corrupt("a layer of files ends too early")
    return data
