"""Workers that are started before it is known whether they are needed."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import sync
from holdfast.model.errors import NotFound, Owned
from holdfast.session import Session, checkpoints
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


SETTINGS = {
    "sys.path": "sys.path.insert(0, {folder!r})",
    "directory": "os.chdir({folder!r})",
    "environment": "os.environ['NUMBER'] = '7'",
    "a large environment": "os.environ.update(NUMBER='7', LONG='x' * 100_000)",
}


@pytest.mark.parametrize("setting", SETTINGS)
async def test_what_an_import_needs_is_there_before_it(tmp_path: Path, setting: str) -> None:
    """Also before the libraries that a new worker imports while the checkpoint is still read."""
    folder, store = tmp_path / "own", str(tmp_path / "store")
    folder.mkdir()
    (folder / "polars.py").write_text("import os\nnumber = os.environ.get('NUMBER')\n")
    there = {"PYTHONPATH": str(folder)} if "environment" in setting else {}
    code = f"import os, sys\n{SETTINGS[setting].format(folder=str(folder))}\nimport polars\n"
    told = "[polars.__file__, polars.number]"
    async with Session("work", store=store, env=there) as session:
        expected = (await session.execute(code + told, check=True)).value
        await session.checkpoint()
    async with await Session.resume("work", store=store, env=there) as session:
        assert (await session.execute(told, check=True)).value == expected


def test_libraries_are_told_early_where_nothing_was_set(tmp_path: Path) -> None:
    told: list[tuple[str, ...]] = []
    with open_store(str(tmp_path)) as store:
        with sync.Session("work", store=store) as session:
            session.execute("import numpy as np\nx = np.ones(9)", check=True)
            session.checkpoint()
        checkpoints.read(store, "session/work", tell=told.append)
    assert told == [("numpy",)]


async def test_a_host_with_many_open_files(store) -> None:
    """The worker's descriptors have the numbers that they had in the host."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        async with Session("many", store=store) as session:
            await session.execute("import os\nx = os.urandom(9_000_000)", check=True)
            made = await session.checkpoint()
            await session.execute("del x", check=True)
            await session.restore(made)
            assert (await session.execute("len(x)")).value == 9_000_000
    finally:
        for fd in many:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
