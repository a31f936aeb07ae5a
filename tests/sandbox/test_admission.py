"""Who may have a sandbox, and whose turn it is."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.model.errors import Busy
from holdfast.sandbox.admission import OWNER, Admission, Gate, Tenant


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Works:
    """What is being made, and in which order it came to its turn."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.begun: list[str] = []
        self.go_on = asyncio.Event()

    async def one(self, name: str) -> None:
        async with self.gate.turn(name.rstrip("0123456789")):
            self.begun.append(name)
            await self.go_on.wait()

    def begin(self, *names: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.one(name)) for name in names]


async def test_lines_are_let_in_one_after_the_other() -> None:
    works = Works(Gate(1, 10, 30))
    tasks = works.begin("a1", "a2", "a3", "a4", "b1", "b2", "c1")
    await settled()
    assert works.begun == ["a1"]
    assert works.gate.waiting == 6
    works.go_on.set()
    await asyncio.gather(*tasks)
    assert works.begun == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]
    assert works.gate.waiting == 0


async def test_a_line_that_is_too_long_is_told_at_once() -> None:
    works = Works(Gate(1, 2, 30))
    tasks = works.begin("a1", "a2", "a3")
    await settled()
    with pytest.raises(Busy, match="2 sandboxes of this token wait") as refused:
        await works.one("a4")
    assert (refused.value.kind, refused.value.http_status) == ("busy", 429)
    tasks += works.begin("b1")  # another token has a line of its own
    await settled()
    works.go_on.set()
    await asyncio.gather(*tasks)
    assert works.begun == ["a1", "a2", "b1", "a3"]


async def test_nobody_waits_for_ever_and_no_turn_is_lost() -> None:
    works = Works(Gate(1, 10, 0.05))
    first = works.begin("a1")
    await settled()
    with pytest.raises(Busy, match="made no sandbox"):
        await works.one("a2")
    works.gate._seconds = 30.0  # nobody else is to be late, however slow the machine is
    given_up = works.begin("a3")
    await settled()
    given_up[0].cancel()
    await asyncio.gather(*given_up, return_exceptions=True)
    # Cancelled in the very moment in which its turn has come: the turn is the next one's.
    late, last = works.begin("a4", "a5")
    await settled()
    works.go_on.set()
    await asyncio.gather(*first)
    late.cancel()
    await asyncio.gather(late, last, return_exceptions=True)
    await asyncio.wait_for(works.one("b1"), 30)
    assert works.begun[-2:] == ["a5", "b1"]


def test_room_for_everybody_and_for_each() -> None:
    held: list[Tenant] = []
    gate = Gate(1, 1, 1)
    admission = Admission(4, lambda: held, gate)
    small = Tenant("small", 2)
    with admission.room(small), admission.room(small):
        with pytest.raises(Busy, match="quota of this token is 2"):
            admission.check(small)
        with admission.room(OWNER, 2), pytest.raises(Busy, match="4 sandboxes already"):
            admission.check(OWNER)
    held += [small, small, OWNER]
    with pytest.raises(Busy):
        admission.check(small)
    admission.check(OWNER)
    with pytest.raises(Busy):
        admission.check(OWNER, 2)
    admission.check(Tenant("other", 1))
    with pytest.raises(Busy):
        admission.check(Tenant("none", 0))
    assert admission.refused == 5
