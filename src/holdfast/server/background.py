"""Work in the background of the server: what ends it, and who hears of that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("holdfast.server")


async def repeat(
    name: str, seconds: Callable[[], float], work: Callable[[], Awaitable[None]]
) -> None:
    """Wait and work, again and again, until cancelled. What goes wrong is logged, once for each
    kind of failure in a row, and the next round is tried all the same."""
    last = ""
    while True:
        await asyncio.sleep(seconds())
        try:
            await work()
            last = ""
        except Exception as error:
            if (told := f"{type(error).__name__}: {error}") != last:
                log.exception("%s failed, and is tried again", name)
            last = told


def begin(
    name: str,
    work: Callable[[], Awaitable[None]],
    failed: Callable[[], Awaitable[None]] | None = None,
) -> asyncio.Task[None]:
    """A task that is not waited for. When it fails, that is logged, and `failed` is called for
    those who would wait for what it does not do any more."""

    async def run() -> None:
        try:
            await work()
        except Exception:
            log.exception("%s failed", name)
            if failed is not None:
                await failed()

    return asyncio.create_task(run(), name=f"holdfast {name}")
