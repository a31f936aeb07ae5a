"""CRIU's `pagemap-*.img`: which pages of memory are in a `pages-*.img`, and in which order.

A magic number, then messages with their length before them: one head, which names the file with
the pages, and entries, each a run of pages. All fields are numbers, and those that we do not know
are written back as they were.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import Corrupt
from holdfast.oci.memory.varint import read_varint, varint

PAGE = 4096
PARENT = "parent"  # CRIU's name for the link to the images that others are an increment of
_MAGIC = 8
_LENGTH = struct.Struct("<I")
_PAGES_ID = 1
_ADDRESS, _NARROW_COUNT, _IN_PARENT, _FLAGS, _COUNT = 1, 2, 3, 4, 5
_PARENT, _LAZY, _PRESENT = 1, 2, 4

Fields = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """A run of pages: `page` is an address divided by the size of a page."""

    page: int
    count: int
    present: bool  # its bytes are in the file with the pages
    in_parent: bool  # its bytes are in the images that these are an increment of
    fields: Fields

    @classmethod
    def of(cls, fields: Fields) -> Entry:
        address, count = fields.get(_ADDRESS), fields.get(_COUNT) or fields.get(_NARROW_COUNT)
        if address is None or count is None or address % PAGE:
            raise Corrupt("a run of pages in a map of memory has no address or no length")
        in_parent = bool(fields.get(_IN_PARENT)) or bool(fields.get(_FLAGS, 0) & _PARENT)
        present = not in_parent and bool(fields.get(_FLAGS, _PRESENT) & _PRESENT)
        return cls(address // PAGE, count, present, in_parent, fields)

    def cut(self, start: int, end: int, *, in_parent: bool) -> Entry:
        """The pages from `start` to `end` of this run, here or in the parent."""
        fields = dict(self.fields)
        fields[_ADDRESS] = (self.page + start) * PAGE
        for name in (_NARROW_COUNT, _COUNT):
            if name in fields:
                fields[name] = end - start
        lazy = fields.get(_FLAGS, 0) & _LAZY
        if in_parent:
            fields[_IN_PARENT] = 1
            if _FLAGS in fields:
                fields[_FLAGS] = _PARENT | lazy
        else:
            fields.pop(_IN_PARENT, None)
            if _FLAGS in fields:
                fields[_FLAGS] = _PRESENT | lazy
        return Entry.of(fields)


@dataclass(frozen=True, slots=True)
class Pagemap:
    """One map: of a process, or of a piece of shared memory."""

    magic: bytes
    head: Fields
    entries: tuple[Entry, ...]

    @property
    def pages_name(self) -> str:
        """The file that has its pages."""
        return f"pages-{self.head.get(_PAGES_ID, 0)}.img"

    @classmethod
    def read(cls, path: Path) -> Pagemap:
        """The map in a file; raises Corrupt when it is none."""
        data = path.read_bytes()
        messages = list(_messages(data))
        if not messages:
            raise Corrupt(f"{path.name} is empty", where=str(path))
        return cls(data[:_MAGIC], messages[0], tuple(Entry.of(each) for each in messages[1:]))

    def encode(self) -> bytes:
        out = bytearray(self.magic)
        for fields in (self.head, *(entry.fields for entry in self.entries)):
            message = b"".join(varint(k << 3) + varint(v) for k, v in sorted(fields.items()))
            out += _LENGTH.pack(len(message)) + message
        return bytes(out)


def pagemaps(folder: Path) -> list[str]:
    """The names of the maps in a folder of images."""
    return sorted(path.name for path in folder.glob("pagemap-*.img") if not path.is_symlink())


def memory_bytes(folder: Path) -> int:
    """How much memory a folder of images stands for, with what its parents have of it."""
    maps = (Pagemap.read(folder / name) for name in pagemaps(folder))
    return PAGE * sum(e.count for m in maps for e in m.entries if e.present or e.in_parent)


def is_increment(folder: Path) -> bool:
    """Whether a folder of images needs others to be restored."""
    return (folder / PARENT).is_symlink()


def _messages(data: bytes) -> Iterator[Fields]:
    at = _MAGIC
    while at < len(data):
        if at + _LENGTH.size > len(data):
            raise Corrupt("a map of memory ends too early")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + length > len(data):
            raise Corrupt("a map of memory ends too early")
        yield _fields(data[at : at + length])
        at += length


def _fields(message: bytes) -> Fields:
    found: dict[int, int] = {}
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        if key & 7:
            raise Corrupt("a map of memory has a field that is no number")
        found[key >> 3], at = read_varint(message, at)
    return found
