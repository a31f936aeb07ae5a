"""Times of files in tars, there and back."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import mtime
from holdfast.model.errors import Corrupt


def read(text: str) -> int:
    member = tarfile.TarInfo("file")
    member.pax_headers = {mtime.HEADER: text}
    return mtime.of_member(member)


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_there_and_back(nanoseconds: int) -> None:
    assert read(mtime.to_text(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [("7", 7 * 10**9), ("7.", 7 * 10**9), ("-1.5", -1_500_000_000), ("0.1234567891", 123_456_789)],
)
def test_as_others_write_it(text: str, nanoseconds: int) -> None:
    assert read(text) == nanoseconds


def test_whole_seconds_need_no_header_of_their_own() -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        info = tarfile.TarInfo("file")
        info.mtime = 1_763_294_400
        archive.addfile(info)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        assert [mtime.of_member(each) for each in archive] == [1_763_294_400 * 10**9]


@pytest.mark.parametrize("text", ["nan", "inf", "1e5", " ", "1.2.3", "+1", "9" * 11, "9" * 6000])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(Corrupt, match="time"):
        read(text)
