"""Archives that are damaged or meant to do harm: each is named and refused, and leaves nothing."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from blake3 import blake3

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput, Conflict, Corrupt, HoldfastError, Unsupported
from holdfast.store import Store, open_store
from holdfast.store.chunks.chunk import chunk_id
from holdfast.store.keys import Key, Keyring
from holdfast.store.parts.contents import Kind
from holdfast.store.parts.part import PartRecord, Pieces, digest, encode_pieces, pieces_root
from holdfast.store.transfer.archive import _KINDS, ArchiveReader, ArchiveWriter, Info
from holdfast.store.transfer.waybill import Waybill

Archive = Callable[..., bytes]
Chunks = Iterable[tuple[Kind, bytes]]


@pytest.fixture
def target() -> Store:
    return open_store("memory://", keyring=Keyring(Key.generate()))


@pytest.fixture
def small(source: Store) -> bytes:
    """An archive with a little of everything."""
    with source.draft("state/small", reason="why", stage="s", tags={"a": "b"}) as draft:
        draft.put("value", {"n": 1, "long": "x" * 2000}, split="structure")
        draft.put("whole", b"some bytes that matter" * 9)
        draft.put("pages", bytes(range(256)) * 40, split="pages")
        draft.commit()
    stream = io.BytesIO()
    source.export("state/small", stream)
    return stream.getvalue()


def refuse(target: Store, data: bytes, *kinds: type[HoldfastError]) -> HoldfastError:
    """The archive is refused, and the store is as it was."""
    for dry_run in (True, False):
        with pytest.raises(kinds or (Corrupt,)) as caught:
            target.import_archive(io.BytesIO(data), dry_run=dry_run)
    assert target.list() == []
    assert target.subjects() == []
    assert target.usage().packs == 0
    assert target.usage().log_bytes == 0
    assert target._ledger.backend.oldest_hold() is None
    return caught.value


def part(name: str = "p", data: bytes = b"content", **changes: Any) -> PartRecord:
    """A part of one piece."""
    pieces = [(chunk_id(data), len(data))]
    fields: dict[str, Any] = {
        "name": name,
        "size": len(data),
        "split": "whole",
        "root": pieces_root(pieces),
        "skew": 0,
        "inline": True,
        "map": encode_pieces(Pieces(chunk_id(data), (len(data),))),
        "volumes": (),
    }
    return PartRecord(**{**fields, **changes})


def waybill(*parts: PartRecord, **changes: Any) -> Waybill:
    """A checkpoint that says what its digest says, unless `changes` give another digest."""
    fields: dict[str, Any] = {
        "id": b"i" * 16,
        "subject": "state/x",
        "parents": (),
        "reason": "",
        "stage": None,
        "time": 1,
        "tags": {},
        "rollback_of": None,
        "digest": b"",
        "parts": parts,
        "maker": bytes(8),
        "proof": b"",
        "labels": {},
    }
    made = Waybill(**{**fields, **changes})
    if made.digest:
        return made
    return msgspec.structs.replace(made, digest=digest(made, made.parts))


def forge(
    writer: ArchiveWriter, kind: Kind, chunk: bytes, codec: int, stored: bytes, plain_size: int
) -> None:
    """Write a chunk without the check that the product makes."""
    writer._frame(_KINDS[kind], stored, codec, plain_size, chunk)


def archive_of(waybills: Iterable[Waybill], carried: Chunks = (), **info: int) -> bytes:
    listed, sent = list(waybills), list(carried)
    stream = io.BytesIO()
    about = Info(
        1, info.get("checkpoints", len(listed)), info.get("chunks", len(sent)), info.get("size", 9)
    )
    writer = ArchiveWriter(stream, about)
    for one in listed:
        writer.waybill(one)
    for kind, data in sent:
        forge(writer, kind, chunk_id(data), 0, data, len(data))
    writer.finish()
    return stream.getvalue()


GOOD: list[tuple[Kind, bytes]] = [("data", b"content")]


def test_what_is_made_here_is_good_when_nothing_is_wrong(target: Store) -> None:
    came = target.import_(io.BytesIO(archive_of([waybill(part())], GOOD)))
    assert target.read(came, "p", trust=True) == b"content"


# -- damage


def test_cut_off_anywhere(target: Store, small: bytes) -> None:
    for size in [*range(0, len(small), 37), len(small) - 1]:
        error = refuse(target, small[:size], Corrupt, BadInput)
        assert error.hint


def test_a_flipped_bit_anywhere(target: Store, small: bytes) -> None:
    for at in range(0, len(small), 3):
        data = bytearray(small)
        data[at] ^= 1 << at % 8
        refuse(target, bytes(data), Corrupt, BadInput, Unsupported)


def test_something_behind_the_end(target: Store, small: bytes) -> None:
    assert "follows" in str(refuse(target, small + b"x"))


def test_frames_swapped_left_out_or_repeated(target: Store, small: bytes) -> None:
    frames = split(small)
    refuse(target, b"".join([*frames[:3], *frames[4:]]))
    refuse(target, b"".join([*frames[:4], frames[3], *frames[4:]]))
    refuse(target, b"".join([*frames[:3], frames[4], frames[3], *frames[5:]]))


def split(data: bytes) -> list[bytes]:
    """Head and frames of an archive."""
    pieces, at = [data[:64]], 64
    while at < len(data):
        kind, _, stored, _ = struct.unpack_from("<4sIII", data, at)
        size = 32 + stored + (0 if kind in (b"INFO", b"CKPT", b"DONE") else 32)
        pieces.append(data[at : at + size])
        at += size
    return pieces


def test_not_an_archive(target: Store) -> None:
    for data in (b"", b"hello", b"PK\3\4" + bytes(500), bytes(64)):
        assert "not an archive" in str(refuse(target, data, BadInput))


def test_a_newer_format_is_said_to_be_newer(target: Store, small: bytes) -> None:
    head = small[:16] + struct.pack("<I", 2) + small[20:48]
    data = head + blake3(head).digest()[:16] + small[64:]
    refuse(target, data, Unsupported)


# -- lengths


@pytest.mark.parametrize("plain", [2**24 + 1, 2**32 - 1])
@pytest.mark.parametrize("stored", [0, 100, 2**32 - 1])
def test_a_claimed_length_is_not_believed(
    target: Store, small: bytes, plain: int, stored: int
) -> None:
    """Neither memory is taken for it nor is it waited for."""
    frames = split(small)
    head = struct.pack("<4sIII", b"DATA", 1, stored, plain)
    frame = head + blake3(head + bytes(32)).digest()[:16] + bytes(32) + bytes(100)
    assert "claims" in str(refuse(target, b"".join([*frames[:3], frame, *frames[3:]])))


def test_a_bomb_of_zstd_is_not_unpacked(target: Store) -> None:
    import zstandard

    packed = zstandard.ZstdCompressor().compress(bytes(50_000_000))
    stream = io.BytesIO()
    writer = ArchiveWriter(stream, Info(1, 1, 1, 9))
    writer.waybill(waybill(part()))
    forge(writer, "data", chunk_id(b"content"), 1, packed, len(packed))
    writer.finish()
    refuse(target, stream.getvalue())


def test_more_or_less_than_was_said(target: Store) -> None:
    for info in ({"checkpoints": 0}, {"checkpoints": 2}, {"chunks": 0}, {"chunks": 2**40}):
        refuse(target, archive_of([waybill(part())], GOOD, **info))
    refuse(target, archive_of([]))


# -- what a checkpoint says of itself


@pytest.mark.parametrize(
    "bad",
    [
        part("../../etc/passwd"),
        part("/etc/passwd"),
        part("a//b"),
        part("a\0b"),
        part(""),
        part(size=-1),
        part(size=2**63 - 1),
        part(size=6),
        part(skew=5),
        part(root=b"r" * 32),
        part(root=b"r"),
        part(volumes=(1,)),
        part(map=b"\xc1"),
        part(map=encode_pieces(Pieces(b"i" * 31, (7,)))),
        part(map=encode_pieces(Pieces(chunk_id(b"content"), (8,)))),
        part(split="structure"),
        part(split="pages"),
        part(split="pages", inline=False, map=b"", size=2**50),
        part(inline=False, map=b"m" * 33),
    ],
)
def test_parts_that_no_store_would_write(target: Store, bad: PartRecord) -> None:
    refuse(target, archive_of([waybill(bad)], GOOD))


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "state/../../x"},
        {"subject": "nothing"},
        {"subject": "state/" + "x" * 300},
        {"id": b"short"},
        {"parents": (b"short",)},
        {"rollback_of": b""},
        {"time": 2**62},
        {"digest": b"d" * 32},
        {"maker": b""},
        {"proof": b"p"},
    ],
)
def test_descriptions_that_make_no_sense(target: Store, change: dict[str, Any]) -> None:
    refuse(target, archive_of([waybill(part(), **change)], GOOD))


def test_two_parts_of_one_name(target: Store) -> None:
    refuse(target, archive_of([waybill(part(), part())], GOOD))


# -- chunks


def test_chunks_that_nothing_named(target: Store) -> None:
    assert "not to come" in str(
        refuse(target, archive_of([waybill(part())], [*GOOD, ("data", b"stowaway")]))
    )


def test_chunks_that_do_not_come(target: Store) -> None:
    assert "did not come" in str(refuse(target, archive_of([waybill(part())])))


def test_a_chunk_that_is_not_what_its_id_says(target: Store) -> None:
    stream = io.BytesIO()
    writer = ArchiveWriter(stream, Info(1, 1, 1, 9))
    writer.waybill(waybill(part()))
    forge(writer, "data", chunk_id(b"content"), 0, b"CONTENT", 7)
    writer.finish()
    assert "id" in str(refuse(target, stream.getvalue()))


def test_a_value_that_unfolds_for_ever(target: Store) -> None:
    """Sixty nodes of which each names the next one twice."""
    encode = msgspec.msgpack.encode
    nodes = [encode(["l", [1, 2, 3]])]
    for _ in range(60):
        below = msgspec.msgpack.Ext(1, chunk_id(nodes[-1]))
        nodes.append(encode(["l", [below, below]]))
    root = part(split="structure", root=chunk_id(nodes[-1]), inline=False, map=b"", size=2**61)
    data = archive_of([waybill(root)], [("node", node) for node in reversed(nodes)])
    assert "bytes" in str(refuse(target, data))


def test_a_map_that_lies_about_its_blocks(source: Store, target: Store, archive: Archive) -> None:
    """Each chunk is what its id says, and the digest fits; only the block is put together wrong."""
    from holdfast.store.parts.blocks import PageTable, pages_root

    pages = [bytes([n]) * 4096 for n in (1, 2)]
    table = PageTable(1)
    for number, page in enumerate(pages):
        table.chunk[0, number] = table.number(chunk_id(page))
    table.hashes[0] = chunk_id(b"something else")
    lying = part(
        split="pages", root=pages_root([table]), map=table.encode()[0], size=8192, inline=True
    )
    chunks: Chunks = [("data", page) for page in pages]
    data = archive_of([waybill(lying)], chunks)
    with pytest.raises(Corrupt, match="block"):
        target.import_(io.BytesIO(data))
    assert target.list() == []
    table.hashes[0] = chunk_id(b"".join(pages))
    honest = part(
        split="pages", root=pages_root([table]), map=table.encode()[0], size=8192, inline=True
    )
    came = target.import_(io.BytesIO(archive_of([waybill(honest)], chunks)))
    assert target.read(came, "p", trust=True) == b"".join(pages)


def test_a_block_of_zeros_with_content(target: Store) -> None:
    from holdfast.store.parts.blocks import PageTable, pages_root

    page = b"\1" * 4096
    table = PageTable(1)
    table.chunk[0, 0] = table.number(chunk_id(page))
    lying = part(split="pages", root=pages_root([table]), map=table.encode(), size=4096)
    refuse(target, archive_of([waybill(lying)], [("data", page)]))


def test_bytes_that_are_also_a_node_come_twice(source: Store, target: Store) -> None:
    """Content may look like anything, like the store's own nodes too."""
    value = {"text": "y" * 5000}
    with source.draft("state/a") as draft:
        draft.put("value", value, split="structure")
        draft.commit()
    root = bytes.fromhex(source.show("state/a").parts[0].root)
    node = bytes(source._ledger.library.get(root))
    with source.draft("state/b") as draft:
        draft.put("a-bytes", node)
        draft.put("b-value", value, split="structure")
        draft.commit()
    stream = io.BytesIO()
    source.export("state/b", stream)
    stream.seek(0)
    came = target.import_(stream)
    assert target.read(came, "a-bytes", trust=True) == node
    assert target.value(came, "b-value", trust=True) == value


# -- lineage and provenance

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


@pytest.mark.parametrize("field", ["parents", "rollback_of"])
def test_lineages_that_go_in_a_circle(target: Store, field: str) -> None:
    def after(other: bytes) -> dict[str, Any]:
        return {field: (other,) if field == "parents" else other}

    refuse(target, archive_of([waybill(id=A, **after(A))]))
    refuse(target, archive_of([waybill(id=A, **after(B)), waybill(id=B, **after(A))]))
    refuse(target, archive_of([waybill(id=A), waybill(id=A)]))


def test_a_circle_closed_by_a_second_archive(target: Store) -> None:
    target.import_(io.BytesIO(archive_of([waybill(id=A, parents=(B,))])))
    with pytest.raises(Corrupt, match="ancestor"):
        target.import_(io.BytesIO(archive_of([waybill(id=B, rollback_of=C, parents=(A,))])))
    assert len(target.list()) == 1


def test_another_checkpoint_under_a_known_id(
    source: Store, line: list[Checkpoint], archive: Archive
) -> None:
    import uuid

    forged = waybill(id=uuid.UUID(line[0].id).bytes)
    with pytest.raises(Conflict):
        source.import_(io.BytesIO(archive_of([forged])))
    assert source.resolve(line[0].id).digest == line[0].digest


def test_a_forged_proof(source: Store, holdfast_home: Any) -> None:
    with source.draft("state/own") as draft:
        mine = bytes.fromhex(draft.commit().signer)
    forged = archive_of([waybill(maker=mine, proof=b"p" * 32)])
    with pytest.raises(Corrupt, match="claims"):
        source.import_(io.BytesIO(forged))
    unproved = archive_of([waybill(maker=mine)])
    assert source.import_(io.BytesIO(unproved)).foreign


def test_a_proof_found_wrong_later_is_reported(target: Store, tmp_path: Any) -> None:
    """Who gets to know the key after the import is told, and the checkpoint stays foreign."""
    maker, mine = Key.generate(), Key.generate()
    with open_store(tmp_path / "s", keyring=Keyring(mine)) as store:
        store.import_(io.BytesIO(archive_of([waybill(maker=maker.id, proof=b"p" * 32)])))
    with open_store(tmp_path / "s", keyring=Keyring(mine, [maker])) as store:
        assert store.resolve("state/x").foreign
        report = store.verify()
        assert report.ok
        assert any("claims to be made" in note for note in report.notes)
        store.prune()  # nor does it keep anybody from collecting


def test_reading_stops_at_the_first_doubt(small: bytes) -> None:
    """A stream that goes on for ever is not read for ever."""

    class Endless(io.RawIOBase):
        def __init__(self) -> None:
            self.given = 0

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            data = small[self.given : self.given + size] or b"\xff" * size
            self.given += len(data)
            return data

    stream = Endless()
    with pytest.raises(Corrupt):
        list(ArchiveReader(stream).frames())  # type: ignore[arg-type]
    assert stream.given < len(small) + 2
