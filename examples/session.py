"""An analysis that survives its worker: run it, watch the worker die, go on.

python examples/session.py [STORE]
"""

from __future__ import annotations

import asyncio
import sys

from holdfast import Session, Store, open_store

LOAD = """
from dataclasses import dataclass

@dataclass
class Reading:
    day: int
    value: float

readings = [Reading(day, day * 1.5) for day in range(10)]
best = max(readings, key=lambda reading: reading.value)
"""

SUMMARY = "[len(readings), best is readings[-1], isinstance(best, Reading)]"


async def main(store: Store) -> None:
    async with Session(name="readings", store=store) as session:
        await session.execute(LOAD)
        loaded = await session.checkpoint(reason="loaded")
        print(f"checkpoint {loaded.short}: {len(loaded.report.items)} names")

        await session.execute("readings.clear()")
        result = await session.execute("import os; os.kill(os.getpid(), 9)")
        print(f"the worker is gone: {result.error}")

    session = await Session.resume("readings", store=store)
    try:
        print("after resuming:", (await session.execute(SUMMARY)).value)

        other = await session.fork("readings-what-if")
        await other.execute("readings.append(Reading(10, 99.0))")
        for each in (session, other):
            print(each.name, "has", (await each.execute("len(readings)")).value, "readings")
        await other.shutdown()
    finally:
        await session.shutdown()


if __name__ == "__main__":
    asyncio.run(main(open_store(sys.argv[1] if len(sys.argv) > 1 else "memory://")))
