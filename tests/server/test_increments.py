"""Checkpoints of one sandbox after another: only pages that changed are stored."""

from __future__ import annotations

import pytest
import zstandard
from tests.server.conftest import Starter
from tests.server.sandbox_client import Wire, attach, created

from holdfast.store import Store

HOLD = """
import os, sys
source = open("/dev/urandom", "rb", buffering=0)
def noise(size):  # nothing besides is touched, as by bytes that are copied
    made = bytearray(size)
    view = memoryview(made)
    while view:
        view = view[source.readinto(view):]
    return made
held = noise(48 << 20)
more = []
print("up", flush=True)
for line in sys.stdin:
    for page in range(64):
        held[page * 4096 * 7] ^= 1
    more.append(noise(1 << 20))  # new pages between those that stay
    print(sum(held[::4096]), len(more), flush=True)
"""

DIRTY = (1 << 20) + 64 * 4096  # a megabyte is new, 64 pages are changed
# What an interpreter and the agent touch by running at all, and descriptions: of everything there
# is inside, where the kernel is frozen, too.
RUNNING = {"runc": 512 << 10, "gvisor": 2 << 20}


async def said(wire: Wire, line: str) -> str:
    start = len(wire.heard)
    await wire.send(event="stdin", data=f"{line}\n", process_id="held")
    while "\n" not in wire.output(start):
        await wire.next()
    return wire.output(start)


async def checkpoint(wire: Wire) -> int:
    await wire.send(action="checkpoint", leave_running=True, during_execution=True)
    await wire.until("CHECKPOINTED")
    [*_, told] = [each for each in wire.heard if each["event"] == "checkpoint"]
    return int(told["stored_bytes"])


@pytest.mark.parametrize("engine", ["runc", "gvisor"])
async def test_only_what_changed_is_stored_and_all_comes_back(start: Starter, engine: str) -> None:
    running = RUNNING[engine]
    server = start("--engine", engine)
    wire = await created(server, enable_checkpoint=True)
    await wire.send(language="python", code=HOLD, process_id="held")
    # The whole line: programs write unbuffered, so its end may come later by itself, and would be
    # taken for an answer. The first checkpoint would be of a program that has yet to answer.
    while "up\n" not in wire.output():
        await wire.next()
    # What an interpreter touches only the first time is touched.
    assert (await said(wire, "go")).split()[1:] == ["1"]
    first = await checkpoint(wire)
    assert first > 48 << 20
    assert await checkpoint(wire) <= running
    for _ in range(2):
        last = await said(wire, "go")
        assert await checkpoint(wire) <= 1.1 * DIRTY + running
    with server.client(server.token) as client:
        assert client.post("/v1/verify", json={"deep": True}).json()["ok"]
    # From the store, not from what the server still has: as another server would.
    await wire.send(action="checkpoint", during_execution=True)
    await wire.rest()
    other = start("--engine", engine)
    async with attach(other, wire.identity) as back:
        await back.until("RUNNING")
        count = int(last.split()[1])
        assert (await said(back, "go")).split()[1] == str(count + 1)
        # What was restored may be written in another order, and more of it is touched at first.
        assert await checkpoint(back) <= 1.1 * DIRTY + 2 * running
        await back.send(action="kill_sandbox")
        await back.rest()


async def test_memory_is_stored_as_it_is(start: Starter, store: Store) -> None:
    """Nobody waits for compression: text that would shrink to a fraction is kept whole."""
    text = "\n".join(map(str, range(3_000_000)))
    assert len(zstandard.compress(text.encode(), 1)) < len(text) / 3
    server = start("--engine", "gvisor")
    wire = await created(server, enable_checkpoint=True)
    hold = "held = '\\n'.join(map(str, range(3_000_000)))\nprint('up', flush=True)\ninput()"
    await wire.send(language="python", code=hold)
    while "up\n" not in wire.output():
        await wire.next()
    assert await checkpoint(wire) >= len(text)
    head = store.head(f"sandbox/{wire.identity[0]}")
    assert head is not None
    memory = [part for part in store.show(head).parts if part.name.startswith("memory/")]
    assert sum(part.size for part in memory) > len(text)
    assert {part.split for part in memory} == {"segment"}  # which are kept raw
    await wire.send(action="kill_sandbox")
    await wire.rest()
