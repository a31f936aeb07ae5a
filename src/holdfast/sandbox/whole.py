"""Work that is not left halfway, whoever asked for it.

A sandbox that is being frozen has an agent that waits for one word, an engine that stands still and
threads that read what was written: nobody can be told to stop there. So who is cancelled meanwhile,
as requests are when a server stops, hears of it when the work is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


async def whole(work: Coroutine[object, object, T]) -> T:
    """What the work gives, or raises. Cancelled, it raises that, and not before the work is done;
    what came of it is then nobody's."""
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        if not doing.cancelled():
            doing.exception()  # whoever would have been told has gone
        raise
