"""A dump as an increment of another: what comes back is every byte, and no more is kept."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.model.errors import Corrupt
from holdfast.oci.memory import increment, slots
from holdfast.oci.memory import whole as wholes
from holdfast.oci.memory.pagemap import Pagemap, pagemaps
from holdfast.oci.memory.runs import Memory, file_pages
from holdfast.testing.dumps import MAGIC, Dump, a_dump, filled, read, write


def reduce(base: Path, new: Path) -> int:
    """Make `new` an increment; gives how many pages it keeps."""
    differences = increment.compare(base, new)
    increment.carry_out(new, differences)
    (new / "parent").symlink_to(base)
    return sum(each.dirty for each in differences)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(dumps=st.lists(a_dump(), min_size=2, max_size=5))
def test_a_line_of_increments_stands_for_every_dump(tmp_path: Path, dumps: list[Dump]) -> None:
    """Maps come and go, regions grow and shrink, memory is shared or not."""
    top = Path(tempfile.mkdtemp(dir=tmp_path))
    before: tuple[Path, Dump] | None = None
    for number, dump in enumerate(dumps):
        folder = write(top / str(number), dump)
        if before is not None:
            kept = reduce(before[0], folder)
            common = dump.keys() & before[1].keys()
            assert kept == sum(
                before[1][name].get(page) != value
                for name in common
                for page, value in dump[name].items()
            )
        assert read(folder) == dump
        before = folder, dump
    whole = top / "whole"
    whole.mkdir()
    wholes.flatten(top / str(len(dumps) - 1), whole)
    assert read(whole) == dumps[-1]
    assert not any(e.in_parent for n in pagemaps(whole) for e in Pagemap.read(whole / n).entries)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(dumps=st.lists(a_dump(), min_size=1, max_size=5))
def test_pages_keep_their_slots(tmp_path: Path, dumps: list[Dump]) -> None:
    top = Path(tempfile.mkdtemp(dir=tmp_path))
    table = slots.empty()
    for number, dump in enumerate(dumps):
        name = next(iter(dump))
        folder = write(top / str(number), dump)
        pagemap = Pagemap.read(folder / name)
        before = dict(zip(*(each.tolist() for each in table), strict=True))
        table, order = slots.of_map(pagemap, table)
        assert len(set(table[1].tolist())) == len(dump[name])
        if len(before) <= 2 * len(dump[name]) and max(before.values(), default=0) < len(dump[name]):
            for page, slot in zip(*(each.tolist() for each in table), strict=True):
                assert before.get(page, slot) == slot
        table = slots.decode(slots.encode(table))
        original = (folder / pagemap.pages_name).read_bytes()
        arranged = folder / "arranged"
        arranged.write_bytes(
            b"".join(slots.rearranged(file_pages(folder / pagemap.pages_name), order))
        )
        again = slots.of_table(pagemap, table)
        assert b"".join(slots.rearranged(file_pages(arranged), again)) == original


def test_slots_do_not_grow_for_ever(tmp_path: Path) -> None:
    table = slots.empty()
    for number in range(20):
        dump = {"pagemap-1.img": {100 * number + i: 1 for i in range(10)}}
        folder = write(tmp_path / str(number), dump)
        table, _ = slots.of_map(Pagemap.read(folder / "pagemap-1.img"), table)
        assert int(table[1].max()) < 20


def test_two_maps_of_one_file_are_left_whole(tmp_path: Path) -> None:
    base = write(tmp_path / "base", {"pagemap-1.img": {1: 1}, "pagemap-2.img": {1: 1}})
    new = write(tmp_path / "new", {"pagemap-1.img": {1: 1}})
    (new / "pagemap-2.img").write_bytes((new / "pagemap-1.img").read_bytes())
    assert increment.compare(base, new) == []


@pytest.mark.parametrize("length", [0, 3, 8, 11, 13, 20])
def test_a_map_that_is_cut_off_is_no_map(tmp_path: Path, length: int) -> None:
    folder = write(tmp_path / "dump", {"pagemap-1.img": {1: 1, 9: 2}})
    path = folder / "pagemap-1.img"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(Corrupt):
        Memory.read(folder, "pagemap-1.img")


def test_what_cannot_be_is_found(tmp_path: Path) -> None:
    base = write(tmp_path / "base", {"pagemap-1.img": {1: 1, 2: 2, 3: 3}})
    new = write(tmp_path / "new", {"pagemap-1.img": {1: 1, 2: 2, 3: 9}})
    reduce(base, new)
    (base / "pages-1.img").write_bytes(filled(1))
    with pytest.raises(Corrupt, match="too short"):
        read(new)
    (base / "pages-1.img").write_bytes(b"x")
    with pytest.raises(Corrupt, match="whole page"):
        read(new)
    write(tmp_path / "other", {"pagemap-1.img": {7: 1}})
    (new / "parent").unlink()
    (new / "parent").symlink_to(tmp_path / "other")
    with pytest.raises(Corrupt, match="lacks pages"):
        read(new)
    (new / "parent").unlink()
    (new / "parent").symlink_to(new)
    with pytest.raises(Corrupt, match="circle"):
        read(new)
    message = b"\x0a\x01x"  # a text where a number should be
    (new / "pagemap-1.img").write_bytes(MAGIC + len(message).to_bytes(4, "little") + message)
    with pytest.raises(Corrupt, match="no number"):
        read(new)
