"""The formats can be read from their description alone: these readers use nothing of Holdfast.

They read the committed data by spec/archive-v1.md and spec/store-v1.md, section 12.
"""

from __future__ import annotations

import json
import struct
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import zstandard
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

DATA = Path(__file__).resolve().parents[2] / "data"
EXPECTED = json.loads((DATA / "store-v1" / "expected.json").read_text())["store"]


def frames(data: bytes) -> Iterator[tuple[str, bytes, bytes]]:
    """Kind, id and payload of each frame of an archive."""
    assert data[:16] == b"HOLDFAST-ARCHIVE"
    assert struct.unpack_from("<I", data, 16) == (1,)
    assert blake3(data[:48]).digest()[:16] == data[48:64]
    at = 64
    while at < len(data):
        kind, codec, stored, plain = struct.unpack_from("<4sIII", data, at)
        ided = 0 if kind in (b"INFO", b"CKPT", b"DONE") else 32
        rest = data[at + 32 : at + 32 + ided + stored]
        check = blake3(data[at : at + 16] + rest).digest()[:16]
        assert check == data[at + 16 : at + 32]
        payload = rest[ided:]
        if kind == b"DONE":
            assert payload == blake3(data[:at]).digest()
            assert at + 32 + stored == len(data)
        if codec == 1:
            payload = zstandard.decompress(payload, max_output_size=plain)
        assert len(payload) == plain
        yield kind.decode(), rest[:ided], payload
        at += 32 + ided + stored


def test_an_archive() -> None:
    found = list(frames((DATA / "transfer-v1" / "archive.holdfast").read_bytes()))
    kinds = [kind for kind, _, _ in found]
    assert kinds[0] == "INFO"
    assert kinds[-1] == "DONE"
    info = msgspec.msgpack.decode(found[0][2])
    chunks = {chunk: data for kind, chunk, data in found if chunk}
    waybills = [msgspec.msgpack.decode(data) for kind, _, data in found if kind == "CKPT"]
    size = sum(len(data) for data in chunks.values())
    assert info[1:] == [len(waybills), len(kinds) - 2 - len(waybills), size]
    assert all(blake3(data).digest() == chunk for chunk, data in chunks.items())
    key = bytes.fromhex((DATA / "store-v1" / "key").read_text())
    proving = blake3(key, derive_key_context="holdfast store v1 proof").digest()
    wanted = {one["id"].replace("-", ""): one for one in EXPECTED}
    for waybill in waybills:
        head, (rollback_of, digest, parts, maker, proof, labels, pinned) = waybill[:7], waybill[7:]
        tags = sorted([name, value] for name, value in head[6].items())
        logical = [[name, size, split, root, skew] for name, size, split, root, skew, *_ in parts]
        manifest = [1, *head[:6], tags, rollback_of, logical]
        assert blake3(msgspec.msgpack.encode(manifest)).digest() == digest
        assert maker == blake3(key, derive_key_context="holdfast store v1 key id").digest()[:8]
        assert proof == blake3(digest, key=proving).digest()
        one = wanted[head[0].hex()]
        assert (one["digest"], one["tags"], one["pinned"]) == (digest.hex(), labels, pinned)
        for name, size, split, root, _skew, inline, packed, volumes in parts:
            assert volumes == []
            if split == "structure":
                assert root in chunks
            elif split in ("whole", "content"):
                leaves = [packed] if inline else [chunks[leaf] for leaf in ids(packed)]
                whole = b""
                for leaf in map(msgspec.msgpack.decode, leaves):
                    pieces = [chunks[piece] for piece in ids(leaf[0])]
                    assert [len(piece) for piece in pieces] == leaf[1]
                    whole += b"".join(pieces)
                assert len(whole) == size, name


def ids(packed: bytes) -> list[bytes]:
    return [packed[at : at + 32] for at in range(0, len(packed), 32)]


def data_key(slot: dict[str, Any], name: str, store_id: str, secret: bytes) -> bytes:
    salt = bytes.fromhex(slot["salt"])
    if slot["kind"] == "passphrase":
        cost = {"n": slot["n"], "r": slot["r"], "p": slot["p"]}
        wrapping = Scrypt(salt=salt, length=32, **cost).derive(secret)
    else:
        context = "holdfast store v1 key file"
        wrapping = blake3(secret + salt, derive_key_context=context).digest()
    bound = json.dumps([store_id, name, slot | {"wrapped": ""}], separators=(",", ":")).encode()
    wrapped = bytes.fromhex(slot["wrapped"])
    return AESGCM(wrapping).decrypt(bytes.fromhex(slot["nonce"]), wrapped, bound)


def test_an_encrypted_store() -> None:
    place = DATA / "transfer-v1" / "encrypted"
    store_id = json.loads((place / "holdfast.json").read_text())["id"]
    text = unicodedata.normalize("NFC", "nothing secret is behind this").encode()
    secrets = {
        "passphrase": text,
        "file": bytes.fromhex((DATA / "transfer-v1" / "encryption.key").read_text()),
    }
    keys = set()
    for path in (place / "keys").iterdir():
        slot = json.loads(path.read_text())
        keys.add(data_key(slot, path.stem, store_id, secrets[slot["kind"]]))
    (key,) = keys
    sealing = blake3(key, derive_key_context="holdfast store v1 sealing").digest()

    def opened(box: bytes, about: bytes) -> bytes:
        own = blake3(box[:16], key=sealing).digest()
        return AESGCM(own).decrypt(bytes(12), box[16:], about)

    (path,) = (place / "packs").iterdir()
    pack, name = path.read_bytes(), bytes.fromhex(path.stem)
    magic, start, count = struct.unpack_from("<16sQQ", pack, len(pack) - 64)
    assert magic == b"HOLDFAST-SEALED\0"
    table = opened(pack[start:-64], b"table" + name)
    assert len(table) == 64 * count
    for row in (table[at : at + 64] for at in range(0, len(table), 64)):
        chunk, offset, stored, plain, codec = struct.unpack_from("<32sQIIB", row)
        about = b"chunk" + bytes([codec - 2]) + struct.pack("<Q", plain)
        data = opened(pack[offset : offset + stored], about)
        data = zstandard.decompress(data, max_output_size=plain) if codec == 3 else data
        assert blake3(data).digest() == chunk

    (path,) = (place / "log").glob("*.snap")
    log, at, entries = path.read_bytes(), 64, []
    while at < len(log):
        header, body, seq = struct.unpack_from("<IIQ", log, at + 32)
        entry = msgspec.msgpack.decode(log[at + 104 : at + 104 + header])
        if entry[0] == "sealed":
            entry = msgspec.msgpack.decode(opened(entry[1], b"entry" + struct.pack("<Q", seq)))
        elif entry[0] == "encrypted":
            check = blake3(key, derive_key_context="holdfast store v1 encryption check").digest()
            assert entry[1:3] == ["aes-256-gcm", check[:16]]
        entries.append(entry)
        at += -(-(104 + header + body) // 8) * 8
    assert [entry[0] for entry in entries[:2]] == ["upto", "encrypted"]
    assert {e[8].hex() for e in entries if e[0] == "commit"} == {one["digest"] for one in EXPECTED}
