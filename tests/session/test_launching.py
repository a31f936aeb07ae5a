"""Workers that are started before it is known whether they are needed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.model.errors import NotFound, Owned
from holdfast.session import Session
from holdfast.store import open_store


def children() -> set[int]:
    """Processes of ours, those that have ended but are not collected included."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found |= {int(pid) for pid in (thread / "children").read_text().split()}
    return found


async def test_nothing_is_left_where_there_is_nothing_to_resume() -> None:
    before = children()
    with open_store("memory://") as store:
        for _ in range(3):
            with pytest.raises(NotFound):
                await Session.resume("nothing", store=store)
        assert children() <= before
        assert store.owner("session/nothing") is None


async def test_what_there_is_instead_is_said() -> None:
    with open_store("memory://") as store:
        with pytest.raises(NotFound) as raised:
            await Session.resume("analisys", store=store)
        assert raised.value.hint.startswith("Session('analisys') begins it; `holdfast subjects")
        async with Session("analysis", store=store) as session:
            await session.checkpoint()
        with pytest.raises(NotFound, match="session/analisys has no checkpoint") as raised:
            await Session.resume("analisys", store=store)
        assert raised.value.hint.startswith("did you mean 'analysis'? `holdfast subjects")


async def test_nothing_is_left_where_somebody_else_is_the_owner(tmp_path: Path) -> None:
    async with Session("mine", store=str(tmp_path)) as session:
        await session.execute("x = 1", check=True)
        await session.checkpoint()
        before = children()
        with pytest.raises(Owned):
            await Session.resume("mine", store=str(tmp_path))
        assert children() <= before
        assert (await session.execute("x")).value == 1


async def test_rubbish_is_collected_in_cells(tmp_path: Path) -> None:
    """Though not while a worker starts and imports what it will need."""
    collects = "import gc, numpy\ngc.isenabled()"
    async with Session("work", store=str(tmp_path)) as session:
        assert (await session.execute(collects)).value is True
        await session.checkpoint()
    async with await Session.resume("work", store=str(tmp_path)) as session:
        assert (await session.execute(collects)).value is True
