"""Families of objects on their own, in the cases that one row of the table cannot show."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import Any

import pytest

from holdfast.session import Session
from holdfast.session.worker.kinds import caches, reading


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("maxsize", [None, 3, 100])
def test_what_a_cache_holds(maxsize: int | None, typed: bool) -> None:
    @functools.lru_cache(maxsize, typed)
    def call(*args: Any, **options: Any) -> Any:
        return [len(args), {**options}] * len(args)

    sentinel = object()
    calls = [
        ((1,), {}), ((1, 2), {}), ((), {"a": 1}), ((1,), {"b": 2, "c": ()}), (("x",), {}),
        (((),), {}), ((sentinel,), {}), ((1,), {}),
    ]  # fmt: skip
    for args, options in calls:
        call(*args, **options)
    held = caches._entries(call, typed)
    assert len(held) == call.cache_info().currsize
    assert held[-1][:2] == ((1,), {}) or maxsize is None  # the last one used
    again = caches.filled(call.__wrapped__, maxsize, typed)
    caches.set_filled(again, (held, {"note": 5}))
    assert caches._entries(again, typed) == held
    assert again.note == 5
    assert again.__wrapped__ is call.__wrapped__
    before = again.cache_info()
    assert again(*held[0][0], **held[0][1]) is held[0][2]
    assert again.cache_info().hits == before.hits + 1
    assert again("new") == [1, {}]


async def test_a_cached_connection_is_made_again(session: Session) -> None:
    await session.execute(
        "import functools, socket\nmade = []\n@functools.lru_cache\n"
        "def connection(name):\n    made.append(name)\n    return socket.socketpair()\n"
        "@functools.cache\ndef direct():\n    made.append('direct')\n"
        "    return socket.create_server(('127.0.0.1', 0))\n"
        "first = connection('db'), direct()",
        check=True,
    )
    checkpoint = await session.checkpoint()
    assert "bound to" in checkpoint.report["direct"].reason
    await session.restore(checkpoint)
    result = await session.execute("direct().getsockname()[0], made", check=True)
    assert result.value == ("127.0.0.1", ["db", "direct", "direct"])


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_where_a_file_stands_in_a_loop(tmp_path: Path, encoding: str, newline: str) -> None:
    path = tmp_path / "lines"
    with path.open("w", encoding=encoding, newline=newline) as out:
        out.writelines(f"{number}{'é' * (number % 17)}\n" for number in range(2000))
    for lines in range(1, 2000, 97):
        with path.open(encoding=encoding) as file, path.open(encoding=encoding) as other:
            for _ in range(lines):
                next(file)
            with pytest.raises(OSError, match="telling position disabled"):
                file.tell()
            place = reading.position(file)
            assert place is not None
            other.seek(place)
            assert other.read() == file.read()


def test_where_it_cannot_be_told(tmp_path: Path) -> None:
    path = tmp_path / "wide"
    path.write_text("one\ntwo\nthree\n", "utf-16")
    with path.open(encoding="utf-16") as file:
        next(file)
        assert reading.position(file) is None
    assert reading.position(io.BytesIO(b"abc")) == 0


async def test_a_deleted_file_with_something_still_to_be_written(
    session: Session, tmp_path: Path
) -> None:
    path = str(tmp_path / "gone")
    code = f"import os\nf = open({path!r}, 'w+b')\nf.write(b'x' * 10)\nf.flush()\n"
    code += f"os.remove({path!r})\nf.seek(4)\nf.write(b'late')"
    await session.execute(code, check=True)
    checkpoint = await session.checkpoint()
    assert "deleted" in checkpoint.report["f"].reason
    await session.restore(checkpoint)
    shown = await session.execute("(f.tell(), f.seek(0), f.read())", check=True)
    assert shown.value == (8, 0, b"xxxxlatexx")


async def test_classes_registered_with_an_abstract_class(session: Session) -> None:
    await session.execute(
        "import abc\nclass Shape(abc.ABC):\n    @abc.abstractmethod\n    def area(self): ...\n"
        "class Dot: pass\nShape.register(Dot)\nShape.register(int)",
        check=True,
    )
    checkpoint = await session.checkpoint()
    await session.restore(checkpoint)
    shown = await session.execute(
        "[issubclass(each, Shape) for each in (Dot, int, str)]", check=True
    )
    assert shown.value == [True, True, False]
