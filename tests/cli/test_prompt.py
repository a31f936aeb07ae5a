"""What is typed at the prompt: whether it is whole, and how the next line begins."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from holdfast.cli.prompt.loop import Loop
from holdfast.cli.prompt.typing import indentation, is_complete
from holdfast.model.errors import StorageFull
from holdfast.session import Session


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("x = 1", True),
        ("", True),
        ("for n in x:", False),
        ("for n in x:\n    pass", False),
        ("for n in x:\n    pass\n", True),
        ("x = (1,\n", False),
        ("x = (1,\n2)", True),
        ("def f(", False),
        ("x = = 1", True),
        ("await thing()", True),
        ("'''abc", False),
        ("@wraps", False),
        ("%log", True),
        ("x = '\0'", True),
    ],
)
def test_whether_what_is_typed_is_complete(text: str, whole: bool) -> None:
    assert is_complete(text) is whole


def test_indentation() -> None:
    assert [indentation(text) for text in ("", "x", "if x:", "if x:\n    y", "  for a in b:")] == [
        "", "", "    ", "    ", "      ",
    ]  # fmt: skip


class Typist:
    """Types these cells, each when all that ran before is saved, or could not be."""

    def __init__(self, session: Session, *cells: str) -> None:
        self._session = session
        self._cells = list(cells)

    async def read(self, number: int) -> str | None:
        await self._session._keeper.saving.settled()
        return self._cells.pop(0) if self._cells else None

    async def ask(self, prompt: str) -> str | None:
        return None

    def attended(self) -> AbstractContextManager[None]:
        return nullcontext()


async def test_a_cell_runs_although_the_checkpoint_before_it_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Session("work", store=str(tmp_path), auto_checkpoint="cell") as session:
        save = session._history.save

        def full_disk(*args: object, **options: object) -> None:
            session._history.save = save
            raise StorageFull("no room", hint="make some")

        session._history.save = full_disk
        await Loop(session, Typist(session, "x = 1", "x += 1", "x")).run()
        await session.flush()
        assert [made.reason for made in await session.list()] == ["cell 3", "cell 2"]
    out, err = capsys.readouterr()
    assert out == "2\n"
    assert err == (
        "error: no room\nhint: make some\n"
        "that was the checkpoint after an earlier cell; the next has its work, too\n"
    )
