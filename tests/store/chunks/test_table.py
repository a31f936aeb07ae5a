"""The table of a pack: one chunk is found as many are."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from holdfast.store.chunks.chunk import Location
from holdfast.store.chunks.table import ROW, Table

NAME = b"n" * 16

entries = st.lists(
    st.tuples(
        st.binary(min_size=32, max_size=32),
        st.builds(
            Location, st.just(NAME), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1),
            st.integers(0, 2**32 - 1), st.integers(0, 255),
        ),
        st.binary(min_size=8, max_size=8),
    ),
    max_size=30, unique_by=lambda entry: entry[0],
)  # fmt: skip


@given(entries, st.binary(min_size=32, max_size=32))
def test_a_table_says_what_it_was_made_of(
    entries: list[tuple[bytes, Location, bytes]], other: bytes
) -> None:
    table = Table.of(NAME, entries)
    assert len(table.rows) == len(entries) * ROW
    assert list(table) == [entry[:2] for entry in sorted(entries)]
    assert [table.check(row) for row in range(len(table))] == [e[2] for e in sorted(entries)]
    for chunk, place, _ in entries:
        assert list(table.find(chunk)) == [place]
    if all(other != chunk for chunk, _, _ in entries):
        assert list(table.find(other)) == []
    rows = np.arange(len(table), dtype=np.int32)
    assert table.locations(rows) == [place for _, place in table]
    for name in ("offset", "stored", "plain", "codec"):
        assert table.column(name).tolist() == [getattr(place, name) for _, place in table]
    assert [row.tobytes() for row in table.ids] == [chunk for chunk, _ in table]


FIND = """
import sys
from holdfast.store.chunks.chunk import Location
from holdfast.store.chunks.index import Index
from holdfast.store.chunks.table import Table

def load(name):
    place = Location(name, 64, 10, 10, 0)
    return Table.of(name, [(bytes([n]) * 32, place, bytes(8)) for n in (1, 2, name[0])])

index = Index(load)
index.add_packs([bytes([n]) * 16 for n in range(3, 13)])
one = bytes([1]) * 32
found = [index.find(chunk) for chunk in (one, bytes([7]) * 32, bytes(32))]
assert list(map(len, found)) == [10, 1, 0]
assert index.find_many([one]) == found[:1]
assert "numpy" not in sys.modules
for number in range(600):  # who asks for so many is served with numpy, and told the same
    assert index.find(number.to_bytes(32, "big")) == []
again = index.find(one)
assert sorted(again) == sorted(found[0])
assert "numpy" in sys.modules
assert index.find_many([one] * 10) == [again] * 10
"""


def test_a_few_chunks_are_found_without_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", FIND], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
