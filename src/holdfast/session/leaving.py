"""Sessions that are open when their program ends: what is due is saved, and what is lost is told.

Only a loop that goes on until then can do it, such as that of `holdfast.sync`.
"""

from __future__ import annotations

import asyncio
import threading
from weakref import WeakSet

from holdfast.model.errors import CaptureFailed, HoldfastError
from holdfast.model.subject import Subject
from holdfast.session.keeper import Keeper

PATIENCE = 30.0  # seconds: whoever ended the program waits for it

_lock = threading.Lock()
# A worker that lives is served by a loop, which holds its keeper.
_open: WeakSet[Keeper] = WeakSet()


def opened(keeper: Keeper) -> None:
    """A session has this keeper."""
    with _lock:
        _open.add(keeper)


async def leave() -> dict[Subject, HoldfastError]:
    """Save what is due in all sessions of this loop; gives what went wrong with it."""
    loop = asyncio.get_running_loop()
    with _lock:
        found = [keeper for keeper in _open if keeper.loop is loop]
    failures = await asyncio.gather(*map(_leave, found))
    lost = zip(found, failures, strict=True)
    return {keeper.subject: failure for keeper, failure in lost if failure is not None}


async def _leave(keeper: Keeper) -> HoldfastError | None:
    try:
        async with asyncio.timeout(PATIENCE):
            await keeper.leave()
    except TimeoutError:
        why = f"it was not saved within {PATIENCE:g} s"
        return CaptureFailed(why, hint="shutdown() waits for it")
    except HoldfastError as error:
        return error
    return None
