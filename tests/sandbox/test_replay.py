"""Replay: whatever is written in whatever pieces, a client can be given it from any point."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.sandbox.replay import Replay, unfinished

streams = st.sampled_from(["stdout", "stderr"])


@given(st.lists(st.tuples(streams, st.binary(max_size=20)), max_size=30))
def test_nothing_is_lost_and_nothing_twice(written: list[tuple[str, bytes]]) -> None:
    replay = Replay()
    for stream, data in written:
        replay.add(stream, data)
    replay.finish()
    for name in ("stdout", "stderr"):
        whole = b"".join(data for stream, data in written if stream == name)
        assert b"".join(p.data for p in replay.after(0) if p.stream == name) == whole
    total = sum(len(data) for _, data in written)
    assert replay.end == total
    for offset in range(total + 1):
        rest = replay.after(offset)
        assert sum(len(piece.data) for piece in rest) == total - offset
        assert all(piece.gap == 0 for piece in rest)


@given(st.text(max_size=30), st.lists(st.integers(1, 5), max_size=40))
def test_text_is_cut_between_characters(text: str, cuts: list[int]) -> None:
    data = text.encode()
    replay = Replay()
    while data:
        size = cuts.pop() if cuts else 1
        replay.add("stdout", data[:size])
        data = data[size:]
    replay.finish()
    assert "".join(piece.data.decode() for piece in replay.after(0)) == text


def test_what_does_not_fit_is_counted() -> None:
    replay = Replay(limit=10)
    for number in range(10):
        replay.add("stdout", f"{number}234".encode())
    pieces = replay.after(0)
    assert b"".join(piece.data for piece in pieces) == b"82349234"
    assert (pieces[0].gap, [piece.gap for piece in pieces[1:]]) == (32, [0])
    assert replay.after(36)[0].gap == 0
    assert replay.after(40) == []


def test_unfinished_characters() -> None:
    assert [unfinished("€".encode()[:n]) for n in range(4)] == [0, 1, 2, 0]
    assert [unfinished("😀".encode()[:n]) for n in range(5)] == [0, 1, 2, 3, 0]
    assert unfinished(b"\xff") == unfinished(b"\x80\x80\x80\x80") == unfinished(b"a") == 0
