"""The pool: a new sandbox takes the body that stands ready, and another one takes its place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.protocol.sandbox_messages import CreateRequest, ExecuteRequest, Limits
from holdfast.sandbox import contract, roots
from holdfast.sandbox.body import Body, Workshop
from holdfast.sandbox.chores import Chores
from holdfast.sandbox.contract import Build
from holdfast.sandbox.engines.process import ProcessBox, ProcessEngine
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.pool import Pool
from holdfast.sandbox.settings import Settings
from holdfast.store import open_store
from holdfast.testing.waiting import until


class Noting(ProcessEngine):
    """An engine that remembers what it made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    async def create(self, build: Build) -> ProcessBox:
        self.made.append(build.name)
        return await super().create(build)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    (tmp_path / "ground").mkdir()
    with open_store(tmp_path / "store") as store:
        fleet = Fleet(store, Noting(), tmp_path / "ground", Settings(warm=1))
        fleet.begin()
        try:
            await until(lambda: fleet.ready == 1, "one stands ready")
            yield fleet
        finally:
            assert await fleet.stop() == []


def made(fleet: Fleet) -> list[str]:
    assert isinstance(fleet.engine, Noting)
    return fleet.engine.made


async def test_one_is_taken_and_replaced(fleet: Fleet) -> None:
    [ready] = made(fleet)
    first, _ = await fleet.create(CreateRequest())
    assert first.body.build.name == ready
    await until(lambda: fleet.ready == 1, "it is replaced")
    assert len(made(fleet)) == 2
    second, _ = await fleet.create(CreateRequest(name="another"))
    assert second.body.build.name == made(fleet)[1]
    for sandbox in (first, second):
        done = await sandbox.execute(ExecuteRequest(language="bash", code="exit 7"))
        assert (await done.process.wait()).code == 7
    await until(lambda: fleet.ready == 1, "it is replaced again")


async def test_what_is_not_plain_is_made_for_itself(fleet: Fleet) -> None:
    [ready] = made(fleet)
    other, _ = await fleet.create(CreateRequest(limits=Limits(processes=20)))
    assert other.body.build.name == made(fleet)[-1] != ready
    assert fleet.ready == 1
    assert (await fleet.create(CreateRequest()))[0].body.build.name == ready


async def test_one_that_has_died_meanwhile_is_nobodys(tmp_path: Path) -> None:
    workshop = Workshop(ProcessEngine(), tmp_path / "boxes")
    root, bodies = roots.default(tmp_path / "root"), list[Body]()

    async def make() -> Body:
        bodies.append(await workshop.make(root, contract.Limits()))
        return bodies[-1]

    chores = Chores()
    pool: Pool[Body] = Pool(make, 2, chores)
    try:
        pool.fill()
        await until(lambda: len(pool) == 2, "two stand ready")
        await bodies[0].box.end()
        await until(bodies[0].line.gone.done, "that is noticed")
        assert pool.take() is bodies[1]
        assert pool.take() is None
        await until(lambda: len(pool) == 2, "both are replaced")
        await until(lambda: not bodies[0].build.folder.exists(), "nothing of it is left")
    finally:
        assert await pool.close() == bodies[2:]
        for body in bodies:
            await body.end()
            await body.clear()
