"""Sessions whose host or worker is killed at any moment: what was acknowledged is there."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.session import Session
from holdfast.store import open_store

HOST = """
import asyncio, sys
from holdfast.session import Session

BEGIN = '''
step, rows, numbers = 0, [], None
class Row:
    def __init__(self, n): self.n = n
'''
STEP = '''
step += 1
rows.append(Row(step))
rows = rows[-200:]
blob = bytes([step % 256]) * 100_000
if numbers is not None:
    numbers[:] = np.random.default_rng(step).standard_normal(len(numbers))
step
'''
NUMBERS = '''
import numpy as np
numbers = np.random.default_rng(0).standard_normal(400_000)
'''

def say(line):
    sys.stdout.write(line + "\\n")  # at once, also where nothing is buffered
    sys.stdout.flush()

async def main(url, how, what):
    options = {"auto_checkpoint": "cell"} if how == "automatic" else {}
    try:
        session = await Session.resume("steps", store=url, **options)
    except Exception as error:
        if error.kind != "not_found": raise
        session = await Session("steps", store=url, **options).start()
        await session.execute(BEGIN + (NUMBERS if what == "arrays" else ""), check=True)
        await session.checkpoint()
    say(f"pid {session.pid}")
    while True:
        result = await session.execute(STEP, check=True)
        if how == "automatic":
            await session.flush()
        else:
            await session.checkpoint()
        say(f"step {result.value}")

asyncio.run(main(*sys.argv[1:]))
"""


class Host:
    """A process that makes steps, each in a checkpoint, and says so."""

    def __init__(self, url: str, how: str, what: str, script: Path) -> None:
        source = str(Path(holdfast.__file__).parent.parent)
        self.process = subprocess.Popen(
            [sys.executable, str(script), url, how, what],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": source},
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline().split()
        if not first:
            pytest.fail(f"the host did not start: {self.process.communicate()[1]}")
        self.worker = int(first[1])
        self._last = 0

    def step(self) -> float:
        """Wait for the next step; how long it took, in seconds."""
        assert self.process.stdout is not None
        began = time.monotonic()
        line = self.process.stdout.readline().split()
        if not line:
            pytest.fail(f"the host ended: {self.process.communicate()[1]}")
        self._last = int(line[1])
        return time.monotonic() - began

    def kill(self, which: int) -> int:
        """Kill the host or its worker; the last step that was acknowledged, 0 without any."""
        assert self.process.stdout is not None
        os.kill(which, signal.SIGKILL)
        if which != self.process.pid:
            time.sleep(0.05)
            self.process.kill()
        said = self.process.stdout.read()  # not by communicate, which forgets what is buffered
        self.process.communicate(timeout=30)
        steps = [int(line.split()[1]) for line in said.splitlines() if line.startswith("step")]
        return max(self._last, *steps, 0)


async def look(url: str) -> dict[str, int]:
    session = await Session.resume("steps", store=open_store(url))
    result = await session.execute(
        "assert [row.n for row in rows] == list(range(max(step - 199, 1), step + 1))\n"
        "assert all(type(row) is Row for row in rows)\n"
        "assert not step or blob == bytes([step % 256]) * 100_000\n"
        "if numbers is not None:\n"
        "    wanted = np.random.default_rng(step).standard_normal(400_000)\n"
        "    assert numbers.tobytes() == wanted.tobytes()\n"
        "{'step': step}"
    )
    await session.shutdown()
    assert result.error is None, result.error.traceback
    return result.value


async def kills(tmp_path: Path, how: str, what: str, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    url, script = str(tmp_path / "store"), tmp_path / "host.py"
    script.write_text(HOST)
    acknowledged = 0
    pace = 0.3  # seconds for a step, until one was seen: a busy machine needs many times that
    for number in range(rounds):
        host = Host(url, how, what, script)
        if number % 2:
            pace = host.step()
        await asyncio.sleep(chance.uniform(0.0, 2 * pace))
        which = host.worker if number % 3 == 2 else host.process.pid
        acknowledged = max(acknowledged, host.kill(which))
        found = (await look(url))["step"]
        # One more may have been made durable before its acknowledgement could be read.
        assert acknowledged <= found <= acknowledged + 1, f"round {number} of seed {seed}"
        acknowledged = found
    assert acknowledged >= rounds // 2
    store = open_store(url)
    assert store.verify(deep=True).ok
    assert store.owner("session/steps") is None
    if what == "arrays":  # what is so large is written to packs, and not to the log
        assert any(Path(url, "packs").iterdir())


WAYS = [("manual", "objects"), ("automatic", "objects"), ("manual", "arrays")]


@pytest.mark.parametrize(("how", "what"), WAYS)
async def test_kills_at_random_moments(tmp_path: Path, how: str, what: str) -> None:
    await kills(tmp_path, how, what, rounds=5, seed=random.randrange(1 << 30))


@pytest.mark.soak
@pytest.mark.parametrize(("how", "what"), [*WAYS, ("automatic", "arrays")])
async def test_many_kills_at_random_moments(tmp_path: Path, how: str, what: str) -> None:
    await kills(tmp_path, how, what, rounds=150, seed=random.randrange(1 << 30))
