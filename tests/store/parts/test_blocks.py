"""Page tables: what a leaf of an extent map says."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import Corrupt
from holdfast.store.chunks.chunk import ZERO_ID
from holdfast.store.parts.blocks import HOLE, PAGES, PageTable

A, B = b"a" * 32, b"b" * 32


def places(table: PageTable) -> list[object]:
    return [table.page_places(block) for block in range(len(table))]


@given(
    st.lists(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 70)), min_size=64), max_size=4)
)
def test_a_table_reads_back(blocks: list[list[tuple[int, int]]]) -> None:
    table = PageTable(len(blocks))
    numbers = [table.number(bytes([i]) * 32) for i in range(4)]
    for at, pages in enumerate(blocks):
        table.hashes[at] = bytes([at]) * 32
        for page, (chunk, where) in enumerate(pages[:PAGES]):
            if chunk >= 0:
                table.chunk[at, page] = numbers[chunk]
                table.at[at, page] = where
    again = PageTable.decode(table.encode()[0])
    folded = [column.tolist() for column in again.runs()]  # before anybody asks for a page
    assert folded[:2] + folded[3:] == [table.runs()[i].tolist() for i in (0, 1, 3)]
    assert again.hashes == table.hashes
    assert places(again) == places(table)
    assert [column.tolist() for column in again.runs()] == folded
    assert set(again.encode()[1]) == set(table.encode()[1])
    assert again.all_extents() == [list(again.extents(at)) for at in range(len(blocks))]


def test_a_whole_block_is_one_extent() -> None:
    table = PageTable(2)
    table.set_whole(0, A, PAGES)
    table.set_whole(1, B, 5)
    assert [(e.page, e.pages, e.chunk, e.at) for e in table.extents(0)] == [(0, PAGES, A, 0)]
    assert [(e.page, e.pages, e.chunk, e.at) for e in table.extents(1)] == [(0, 5, B, 0)]
    table.set_zero(0)
    assert list(table.extents(0)) == []
    assert table.hashes[0] == ZERO_ID


def test_chunks_that_nothing_uses_are_left_out() -> None:
    table = PageTable(1)
    table.set_whole(0, A, PAGES)
    table.set_whole(0, B, PAGES)
    assert table.encode()[1] == [B]
    assert PageTable.decode(table.encode()[0]).ids == [B]


def test_a_resized_table_keeps_what_it_can() -> None:
    table = PageTable(2)
    table.set_whole(0, A, PAGES)
    table.set_whole(1, B, PAGES)
    assert places(table.resized(1)) == places(table)[:1]
    grown = table.resized(3)
    assert places(grown)[:2] == places(table)
    assert grown.hashes[2] == ZERO_ID
    grown.set_zero(0)
    assert table.hashes[0] == A  # a copy


@given(st.binary(max_size=200))
def test_garbage_is_corrupt(garbage: bytes) -> None:
    try:
        table = PageTable.decode(garbage)
    except Corrupt:
        return
    assert places(PageTable.decode(table.encode()[0])) == places(table)  # it happened to be a leaf


@given(st.binary(max_size=96), st.binary(max_size=96), st.binary(max_size=64))
def test_a_leaf_with_impossible_columns_is_corrupt_or_harmless(
    hashes: bytes, ids: bytes, extents: bytes
) -> None:
    try:
        table = PageTable.decode(msgspec.msgpack.encode([hashes, ids, extents]))
    except Corrupt:
        return
    assert int(np.max(table.chunk, initial=-1)) < max(1, len(table.ids))


@pytest.mark.parametrize(
    "extents",
    [
        [(0, 4, 8, 0, 0), (0, 8, 8, 1, 0)],  # they overlap
        [(1, 0, 4, 1, 0), (0, 0, 4, 0, 0)],  # out of order
        [(0, 60, 8, 0, 0)],  # into the next block
        [(0, 3, 0, 0, 0), (0, 3, 2, 1, 5)],  # one is empty
    ],
)
def test_extents_that_nobody_would_write_mean_their_pages(
    extents: list[tuple[int, int, int, int, int]],
) -> None:
    kinds = ("u1", "u1", "u1", "<u2", "<u2")
    columns = zip(kinds, zip(*extents, strict=True), strict=True)
    packed = b"".join(np.array(column, dtype=kind).tobytes() for kind, column in columns)
    leaf = msgspec.msgpack.encode([A + B, A + B, packed])
    wanted: list[list[object]] = [[None] * PAGES, [None] * PAGES]
    for block, page, pages, chunk, at in extents:
        for i in range(pages):
            over, inside = divmod(page + i, PAGES)
            wanted[block + over][inside] = ([A, B][chunk], at + i)
    table = PageTable.decode(leaf)
    runs = list(zip(*(column.tolist() for column in table.runs()), strict=True))
    told: list[list[object]] = [[None] * PAGES, [None] * PAGES]
    for first, pages, chunk, at in runs:
        for i in range(pages):
            told[(first + i) // PAGES][(first + i) % PAGES] = ([A, B][chunk], at + i)
    assert places(table) == told == wanted


def test_an_extent_outside_of_the_part_is_corrupt() -> None:
    table = PageTable(2)
    table.set_whole(1, A, PAGES)
    leaf = msgspec.msgpack.decode(table.encode()[0])
    with pytest.raises(Corrupt):
        PageTable.decode(msgspec.msgpack.encode([leaf[0][:32], leaf[1], leaf[2]]))
    with pytest.raises(Corrupt):
        PageTable.decode(msgspec.msgpack.encode([leaf[0], b"", leaf[2]]))


def test_whoever_comes_while_a_table_is_unfolded_finds_all_of_it() -> None:
    """Reads of one part share its tables: a part read by four at once came back as zeros."""
    table = PageTable(256)
    for block in range(256):
        table.set_whole(block, A, PAGES)
    leaf = table.encode()[0]
    every = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as several:
            for _ in range(100):
                again = PageTable.decode(leaf)
                begin = threading.Barrier(4)

                def look(turn: int, again: PageTable = again, begin: Any = begin) -> bool:
                    begin.wait()
                    runs = again.runs() if turn % 2 else None
                    whole = (again.chunk != HOLE).all() and (again.at == np.arange(PAGES)).all()
                    return bool(whole and (runs is None or runs.pages.sum() == 256 * PAGES))

                assert all(several.map(look, range(4)))
    finally:
        sys.setswitchinterval(every)
