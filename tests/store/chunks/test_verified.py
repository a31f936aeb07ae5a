"""Verified chunks: nothing else can be copied, and no place reads stored bytes unseen."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt
from holdfast.store.chunks.chunk import RAW, ZSTD, chunk_id, encode, seal_chunk
from holdfast.store.chunks.verified import VerifiedChunk
from holdfast.store.cipher import AesCipher

TEXT = b"some text that repeats itself " * 100

# Functions that read stored bytes without making a `VerifiedChunk`, and what verifies the bytes.
UNVERIFIED_READS = {
    "chunks/library.py:Library._verified_at": "makes a VerifiedChunk of them",
    "chunks/library.py:Library._read_span": "compares each chunk with its id",
    "chunks/library.py:Library.read": "gives them to the callers below",
    "chunks/library.py:Library.peek_into": "the caller verifies the block that they go into",
    "chunks/packs.py:read_table": "compares the table with its checksum",
    "chunks/sink.py:Sink.read": "its only caller is _Arrivals.get",
    "transfer/receiver.py:_Arrivals.get": "compares the chunk with its id",
    "parts/pagereader.py:PageReader._chunk": "`read` compares the block with its hash",
    "parts/pagereader.py:PageReader._extended": "`read` compares the block with its hash",
    "parts/pagereader.py:PageReader.glance": "its callers only guess by the bytes",
    "parts/pagereader.py:PageReader.glance_at": "its callers only guess by the bytes",
    "parts/mapping.py:Shown.check": "compares each chunk with its id",
    "verifying.py:_Inspection._look_at_pack": "is the verification",
    "verifying.py:_Inspection._look_between": "is the verification",
    "verifying.py:_Inspection._look_at_chunk": "is the verification",
    "backends/objects/backend.py:ObjectBackend.read": "is the backend's own way of reading",
}

# The only callers of what stores bytes under an id that was not computed of them there.
STORES_UNDER_AN_ID = {
    "chunks/packs.py:PackWriter.copy": "takes a VerifiedChunk",
    "chunks/sink.py:Sink.put_verified": "takes a VerifiedChunk",
    "chunks/sink.py:Sink._store": "has computed the id, or was given a VerifiedChunk",
    "chunks/sink.py:Sink._spill": "moves what waits in memory",
    "parts/pagewriter.py:PageWriter._examine_block": "has computed the id of these bytes",
    "parts/pagewriter.py:PageWriter._enter": "stores what _examine_block computed the id of",
}


@pytest.mark.parametrize("compressible", [True, False])
def test_right_bytes_are_verified(noise, compressible: bool) -> None:
    plain = TEXT if compressible else noise(5000)
    codec, stored = encode(plain)
    found = VerifiedChunk(chunk_id(plain), codec, stored, len(plain))
    assert bytes(found.plain) == plain
    assert (found.codec, bytes(found.encoded)) == (codec, bytes(stored))
    assert codec == (ZSTD if compressible else RAW)


def test_encrypted_bytes_keep_both_forms() -> None:
    cipher = AesCipher(bytes(32))
    codec, packed = encode(TEXT)
    sealed_codec, sealed = seal_chunk(cipher, codec, packed, len(TEXT))
    found = VerifiedChunk(chunk_id(TEXT), sealed_codec, sealed, len(TEXT), cipher)
    assert (found.stored_codec, found.stored) == (sealed_codec, sealed)
    assert (found.codec, found.encoded) == (codec, packed)


def test_wrong_bytes_are_refused(noise) -> None:
    plain = noise(5000)
    for wrong, size in ((bytes(5000), 5000), (plain[:-1], 5000), (plain[:-1], 4999)):
        with pytest.raises(Corrupt):
            VerifiedChunk(chunk_id(plain), RAW, wrong, size)


def test_unverified_reads_are_listed(repository: Path) -> None:
    found = functions_with(repository, reads_stored_bytes)
    assert found == UNVERIFIED_READS.keys()


def test_writes_under_an_id_are_listed(repository: Path) -> None:
    found = functions_with(repository, stores_under_an_id)
    assert found == STORES_UNDER_AN_ID.keys()


def reads_stored_bytes(node: ast.AST) -> bool:
    """`backend.read`, called or not, anything like `reader.read(volume, offset, size)`,
    `library.read(place)`, `library.peek(chunk)`, ..."""
    if isinstance(node, ast.Call):
        return called(node) == "read" and len(node.args) == 3
    if not isinstance(node, ast.Attribute):
        return False
    owner = ast.unparse(node.value).rpartition(".")[2].strip("_")
    return node.attr in ("peek", "peek_into") or (
        node.attr == "read" and owner in ("backend", "volumes", "library", "originals()", "sink")
    )


def stores_under_an_id(node: ast.AST) -> bool:
    """`writer.add(chunk, codec, stored, plain)` and `sink.put(data, chunk=...)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    given = {keyword.arg for keyword in node.keywords}
    name = called(node)
    return (name == "add" and len(node.args) == 4) or (name == "put" and "chunk" in given)


def called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Name):
        return call.func.id
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def functions_with(repository: Path, wanted: Callable[[ast.AST], bool]) -> set[str]:
    """The functions of the store in which something stands."""
    root = repository / "src" / "holdfast" / "store"
    return {
        f"{path.relative_to(root)}:{'.'.join(names)}"
        for path in sorted(root.rglob("*.py"))
        for node, names in nodes(ast.parse(path.read_text()), ())
        if wanted(node)
    }


def nodes(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Every node below, with the names of the classes and functions that it stands in."""
    for child in ast.iter_child_nodes(node):
        inside = (
            (*names, child.name) if isinstance(child, ast.FunctionDef | ast.ClassDef) else names
        )
        yield child, inside
        yield from nodes(child, inside)
