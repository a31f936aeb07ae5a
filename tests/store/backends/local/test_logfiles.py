"""The files of a log: what is wrong with them is said, whatever is in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store.backends.local import logfiles
from holdfast.store.log import frames as framing
from holdfast.store.log.entries import Upto, encode_entry
from holdfast.store.log.frames import Signed

NAME = bytes(range(16))


def snapshot(folder: Path, header: bytes) -> None:
    upto = Signed(seq=9, key_id=bytes(8), mac=bytes(32), header=header)
    path = logfiles.snapshot_path(folder, 9, NAME)
    path.write_bytes(framing.encode_snapshot(NAME, upto, []))


def test_a_name_tells_what_a_file_is(tmp_path: Path) -> None:
    snapshot(tmp_path, b"")
    path = logfiles.segment_path(tmp_path, 0x1F, NAME)
    path.write_bytes(b"")
    (tmp_path / "lock").touch()
    (tmp_path / f"{0:016x}-{NAME.hex()}.log.bak").touch()
    found = sorted(file for file, _ in logfiles.listed(tmp_path))
    assert [(file.seq, file.is_snapshot) for file in found] == [(9, True), (31, False)]
    assert logfiles.segment_name(path) == NAME


def test_a_snapshot_that_is_whole(tmp_path: Path) -> None:
    snapshot(tmp_path, encode_entry(Upto(seq=9, count=0)))
    assert logfiles.audit(tmp_path) == []


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(encode_entry(Upto(seq=9, count=1)), id="one entry too few"),
        pytest.param(b"\x91\xa6kommit", id="an entry of another version"),
        pytest.param(b"\xc1", id="nothing that can be read"),
        pytest.param(b"", id="nothing at all"),
    ],
)
def test_a_snapshot_whose_first_entry_does_not_fit(tmp_path: Path, header: bytes) -> None:
    """Its checksum is right: whoever can write files can compute one."""
    snapshot(tmp_path, header)
    (damage,) = logfiles.audit(tmp_path)
    assert (damage.what, damage.torn) == ("entries are missing", False)
