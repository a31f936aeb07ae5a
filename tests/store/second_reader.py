"""A second reader of a store in a directory, written from spec/store-v1.md alone.

It uses nothing of Holdfast. It reads plain stores in which nothing is damaged, checks all that the
document says of what it reads, and is not made for speed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import zstandard
from blake3 import blake3

PAGE = 4096
BLOCK = 64 * PAGE
COMMIT = (
    "id", "subject", "parents", "reason", "stage", "time", "tags", "digest", "size", "stored",
    "count", "parts", "parts_chunk", "volumes", "chunk_ids", "chunk_sizes", "verb", "before",
    "rollback_of", "fence", "maker", "proof", "trusted", "labels", "pinned",
)  # fmt: skip
DEFAULTS = {
    "fence": 0, "maker": b"", "proof": b"", "trusted": False, "labels": None, "pinned": False,
}  # fmt: skip


def hashed(data: bytes, size: int = 32) -> bytes:
    return blake3(data).digest()[:size]


def cut(data: bytes, size: int) -> list[bytes]:
    assert len(data) % size == 0
    return [data[at : at + size] for at in range(0, len(data), size)]


# -- section 1


def check_marker(line: bytes) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(line)
    rest = {name: value for name, value in said.items() if name != "checksum"}
    plain = json.dumps(rest, sort_keys=True, separators=(",", ":")) + "\n"
    assert said["checksum"] == hashed(plain.encode(), 16).hex()
    assert (said["format"], said["version"]) == ("holdfast-store", 1)
    return said


# -- sections 2 and 3


def opened(stored: bytes, plain: int, codec: int, chunk: bytes) -> bytes:
    assert codec in (0, 1)
    data = zstandard.decompress(stored, max_output_size=plain) if codec else stored
    assert len(data) == plain <= 16 << 20
    assert hashed(data) == chunk
    return data


def read_pack(path: Path) -> dict[bytes, bytes]:
    """All chunks of a pack, by id; every byte of it is looked at."""
    pack = path.read_bytes()
    magic, version, zeros, name, check = struct.unpack_from("<16sI12s16s16s", pack)
    assert (magic, version, zeros) == (b"HOLDFAST-PACK\0\0\0", 1, bytes(12))
    assert name.hex() == path.stem
    assert check == hashed(pack[:48], 16)
    foot = pack[-64:]
    magic, start, count, zeros, check = struct.unpack("<16sQQ16s16s", foot)
    assert (magic, zeros) == (b"HOLDFAST-TABLE\0\0", bytes(16))
    table = pack[start:-64]
    assert len(table) == 64 * count
    assert check == hashed(table + foot[:48], 16)
    found = {}
    covered = bytearray(pack[64:start])
    for row in cut(table, 64):
        chunk, offset, length, plain, codec, zeros, check = struct.unpack("<32sQIIB7s8s", row)
        stored = pack[offset : offset + length]
        assert (zeros, check) == (bytes(7), hashed(stored, 8) if codec == 1 else bytes(8))
        found[chunk] = opened(stored, plain, codec, chunk)
        covered[offset - 64 : offset - 64 + length] = bytes(length)
    assert list(found) == sorted(found)
    assert not any(covered)
    return found


# -- section 4


@dataclass(frozen=True)
class Entry:
    """An entry of the log, with the segment that it was first written to."""

    seq: int
    origin: bytes
    key_id: bytes
    mac: bytes
    header: bytes
    body: bytes

    @property
    def said(self) -> list[Any]:
        found: list[Any] = msgspec.msgpack.decode(self.header)
        return found


def read_log_file(path: Path) -> Iterator[Entry]:
    """The entries of a segment or of a snapshot in which nothing is damaged."""
    log = path.read_bytes()
    magic, version, zeros, number, name, check = struct.unpack_from("<16sI4sQ16s16s", log)
    segment = path.suffix == ".log"
    assert magic == (b"HOLDFAST-LOG\0\0\0\0" if segment else b"HOLDFAST-SNAP\0\0\0")
    assert (version, zeros, check) == (1, bytes(4), hashed(log[:48], 16))
    assert path.stem == f"{number:016x}-{name.hex()}"
    at = 64
    while any(log[at:]):  # zeros up to the end are the runway
        marker, origin, head, body, seq = struct.unpack_from("<16s16sIIQ", log, at)
        key_id, mac, check = struct.unpack_from("<8s32s16s", log, at + 48)
        end = at + 104 + head + body
        padded = at + -(-(end - at) // 8) * 8
        assert marker == name
        assert origin == name or not segment
        assert check == hashed(log[at : at + 88] + log[at + 104 : padded], 16)
        assert not any(log[end:padded])
        yield Entry(
            seq, origin, key_id, mac, log[at + 104 : at + 104 + head], log[end - body : end]
        )
        at = padded


def read_log(folder: Path) -> list[Entry]:
    """The newest snapshot, then what the segments have behind it, and bodies that it left out."""
    found: dict[int, Entry] = {}
    upto = 0
    snapshots = sorted(folder.glob("*.snap"))
    if snapshots:
        first, *kept = read_log_file(snapshots[-1])
        kind, upto, count = first.said
        assert (kind, upto, count) == ("upto", first.seq, len(kept))
        found = {entry.seq: entry for entry in kept}
    for path in sorted(folder.glob("*.log")):
        for entry in read_log_file(path):
            if entry.seq > upto or entry.seq in found or entry.body:
                found[entry.seq] = entry
    later = [seq for seq in found if seq > upto]
    assert sorted(later) == list(range(upto + 1, upto + 1 + len(later)))
    return [found[seq] for seq in sorted(found)]


# -- the fold of the log


@dataclass
class Checkpoint:
    """A commit and what later entries say of it."""

    commit: dict[str, Any]
    foreign: bool
    tags: dict[str, str]
    pinned: bool
    parts: list[list[Any]] = field(default_factory=list)

    def part(self, name: str) -> list[Any]:
        (found,) = (each for each in self.parts if each[0] == name)
        return found


class Reader:
    """A store as its files describe it. `key`: the 32 bytes of ours."""

    def __init__(self, place: Path, key: bytes) -> None:
        self.marker = check_marker((place / "holdfast.json").read_bytes())
        self._signing = blake3(key, derive_key_context="holdfast store v1 signing").digest()
        self._key_id = blake3(key, derive_key_context="holdfast store v1 key id").digest()[:8]
        self._proving = blake3(key, derive_key_context="holdfast store v1 proof").digest()
        self.volumes = {bytes.fromhex(p.stem): read_pack(p) for p in place.glob("packs/*.pack")}
        self.checkpoints: dict[bytes, Checkpoint] = {}
        self.heads: dict[str, bytes | None] = {}
        self.moves: list[tuple[str, str, bytes | None, bytes | None]] = []
        self._relocated: dict[bytes, list[bytes]] = {}
        for entry in read_log(place / "log"):
            self._take(entry)
        for one in self.checkpoints.values():
            self._complete(one)

    def _take(self, entry: Entry) -> None:
        ours = entry.key_id == self._key_id
        if ours:
            message = struct.pack("<Q", entry.seq) + entry.header
            assert entry.mac == blake3(message, key=self._signing).digest()
        kind, *said = entry.said
        match kind:
            case "commit":
                self._take_commit(entry, said, ours)
            case "move":
                subject, before, after, verb, *_ = said
                self._move(verb, subject, before, after)
            case "moves":
                for subject, before, after, *_ in said[0]:
                    self._move(said[1], subject, before, after)
            case "label":
                which, put, gone, pinned, *_ = said
                if which in self.checkpoints:
                    one = self.checkpoints[which]
                    one.tags = {n: v for n, v in one.tags.items() if n not in gone} | put
                    one.pinned = one.pinned if pinned is None else pinned
            case "drop":
                for which in said[0]:
                    self.checkpoints.pop(which, None)
            case "relocate":
                self._relocated[said[0]] = cut(said[1], 16)
            case _:
                assert kind in ("condemn", "own", "disown")

    def _take_commit(self, entry: Entry, said: list[Any], ours: bool) -> None:
        commit = DEFAULTS | dict(zip(COMMIT, said, strict=False))
        here = self.volumes.setdefault(entry.origin, {})
        at = 0
        sizes = commit["chunk_sizes"] if entry.body else []
        for chunk, (stored, plain, codec) in zip(
            cut(commit["chunk_ids"], 32) if entry.body else [],
            (sizes[i : i + 3] for i in range(0, len(sizes), 3)),
            strict=True,
        ):
            here[chunk] = opened(entry.body[at : at + stored], plain, codec, chunk)
            at += stored
        assert at == len(entry.body)
        commit["volumes"] = [
            entry.origin if name == bytes(16) else name for name in cut(commit["volumes"], 16)
        ]
        labels = commit["labels"]
        tags = commit["tags"] if labels is None else labels
        self.checkpoints[commit["id"]] = Checkpoint(commit, not ours, tags, commit["pinned"])
        if ours and commit["proof"]:
            assert commit["proof"] == blake3(commit["digest"], key=self._proving).digest()
        if commit["verb"] not in ("import", "aside"):
            self._move(commit["verb"], commit["subject"], commit["before"], commit["id"])

    def _move(self, verb: str, subject: str, before: bytes | None, after: bytes | None) -> None:
        self.heads[subject] = after
        self.moves.append((subject, verb, before, after))

    # -- section 5

    def _complete(self, one: Checkpoint) -> None:
        commit = one.commit
        packed = commit["parts"] or self._chunk(one, commit["parts_chunk"])
        one.parts = msgspec.msgpack.decode(packed)
        assert len(one.parts) == commit["count"]
        assert [part[0] for part in one.parts] == sorted(part[0] for part in one.parts)
        logical = [part[:5] for part in one.parts]
        about = [commit[n] for n in ("id", "subject", "parents", "reason", "stage", "time")]
        tags = sorted([name, value] for name, value in commit["tags"].items())
        manifest = [1, *about, tags, commit["rollback_of"], logical]
        assert commit["digest"] == hashed(msgspec.msgpack.encode(manifest))

    def _chunk(self, one: Checkpoint, chunk: bytes, where: list[int] | None = None) -> bytes:
        """A chunk, from a volume that the checkpoint, or its part, names."""
        names = one.commit["volumes"]
        for name in names if where is None else [names[index] for index in where]:
            for meant in self._meant(name):
                if chunk in self.volumes.get(meant, {}):
                    return self.volumes[meant][chunk]
        raise AssertionError(f"no volume that is named has {chunk.hex()}")

    def _meant(self, volume: bytes) -> list[bytes]:
        if volume not in self._relocated:
            return [volume]
        return [each for to in self._relocated[volume] for each in self._meant(to)]

    def read(self, one: Checkpoint, part: str) -> Any:
        """The bytes of a part, or its value."""
        _, size, split, root, skew, _, _, where = one.part(part)

        def chunk(which: bytes) -> bytes:
            return self._chunk(one, which, where)

        if split == "structure":
            return Structure(chunk).value(root)
        leaves = self.leaves(one, part)
        if split in ("whole", "content"):
            return pieces(leaves, chunk, size, root)
        assert split in ("pages", "segment")
        return pages(leaves, chunk, size, skew, root)

    def leaves(self, one: Checkpoint, part: str) -> list[list[Any]]:
        """The map of a part that is no structure."""
        *_, inline, packed, where = one.part(part)
        found = [packed] if inline else [self._chunk(one, each, where) for each in cut(packed, 32)]
        return [msgspec.msgpack.decode(leaf) for leaf in found]


def pieces(leaves: list[list[Any]], chunk: Any, size: int, root: bytes) -> bytes:
    told, data = b"", b""
    for ids, lengths, *_ in leaves:
        assert len(lengths) <= 1024
        for which, length in zip(cut(ids, 32), lengths, strict=True):
            piece = chunk(which)
            assert len(piece) == length
            told += which + struct.pack("<Q", length)
            data += piece
    assert (len(data), hashed(told)) == (size, root)
    return data


def pages(leaves: list[list[Any]], chunk: Any, size: int, skew: int, root: bytes) -> bytes:
    """The blocks of a page map, in each of which pages lie, and deltas on them."""
    blocks = -(-(skew + size) // BLOCK)
    data = bytearray(blocks * BLOCK)
    hashes = b"".join(leaf[0] for leaf in leaves)
    assert (hashed(hashes), len(hashes)) == (root, 32 * blocks)
    for number, (own, ids, extents, *rest) in enumerate(leaves):
        assert len(own) == 32 * min(256, blocks - number * 256)
        chunks = [chunk(which) for which in cut(ids, 32)]
        first = number * 256 * BLOCK
        for block, page, count, which, source in columns(extents, "BBBHH"):
            at = first + block * BLOCK + page * PAGE
            piece = chunks[which][source * PAGE : (source + count) * PAGE]
            data[at : at + len(piece)] = piece
        for block, which, offset in columns(rest[0] if rest else b"", "BHI"):
            lay(data, first + block * BLOCK, chunks[which], offset)
    for number, wanted in enumerate(cut(hashes, 32)):
        # What lies before the part's first byte is zeros of its block; behind its end is nothing.
        block = bytes(data[number * BLOCK : min((number + 1) * BLOCK, skew + size)])
        assert wanted == (hashed(block) if any(block) else bytes(32)), number
    return bytes(data[skew : skew + size])


def columns(packed: bytes, form: str) -> list[tuple[int, ...]]:
    """Rows of what is written as columns, one behind the other."""
    row = struct.calcsize("<" + form)
    count = len(packed) // row
    assert len(packed) == count * row
    found, at = [], 0
    for kind in form:
        found.append(struct.unpack_from(f"<{count}{kind}", packed, at))
        at += count * struct.calcsize("<" + kind)
    return list(zip(*found, strict=True))


def lay(data: bytearray, block: int, chunk: bytes, offset: int) -> None:
    """XOR a delta onto a block."""
    (count,) = struct.unpack_from("<I", chunk, offset)
    gaps = struct.unpack_from(f"<{count}H", chunk, offset + 4)
    planes = [chunk[offset + 4 + (2 + i) * count :][:count] for i in range(8)]
    word = 0
    for number, gap in enumerate(gaps):
        word += gap
        for i in range(8):
            data[block + word * 8 + i] ^= planes[i][number]


# -- section 6


class Structure:
    """Values out of nodes."""

    def __init__(self, chunk: Any) -> None:
        self._chunk = chunk

    def value(self, root: bytes) -> Any:
        return self._node(self._chunk(root))

    def _node(self, packed: bytes) -> Any:
        kind, held, *behind = msgspec.msgpack.decode(packed, ext_hook=Marked)
        match kind:
            case "v":
                return self._item(held)
            case "m":
                return {k: self._item(v) for k, v in zip(held[::2], held[1::2], strict=True)}
            case "l":
                return [self._item(item) for item in held]
            case "M" | "L":
                runs = [self._node(self._chunk(which)) for which in cut(held, 32)]
                runs += [self._item(last) for last in behind]
                if kind == "L":
                    return [item for run in runs for item in run]
                return {key: item for run in runs for key, item in run.items()}
            case "s" | "b":
                data = b"".join(self._chunk(which) for which in cut(held, 32))
                return data.decode() if kind == "s" else data
        raise AssertionError(f"no such node: {kind}")

    def _item(self, item: Any) -> Any:
        if isinstance(item, list):
            return [self._item(each) for each in item]
        if isinstance(item, dict):
            return {key: self._item(each) for key, each in item.items()}
        if not isinstance(item, Marked):
            return item
        match item.code:
            case 1:
                return self.value(item.data)
            case 2:
                return int.from_bytes(item.data, "big", signed=True)
            case 3:
                return self._node(item.data)
        raise AssertionError(f"no such extension: {item.code}")


class Marked:
    """An extension of MessagePack, as it stands there."""

    def __init__(self, code: int, data: memoryview) -> None:
        self.code, self.data = code, bytes(data)
