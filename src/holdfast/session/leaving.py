"""Sessions that are open when their program ends: what is due is saved, and what is lost is told.

Only a loop that goes on until then can save, such as that of `holdfast.sync`. Where it is over,
nobody can ask the worker for anything any more.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading

from holdfast.model.errors import CaptureFailed, HoldfastError
from holdfast.model.subject import Subject
from holdfast.session.keeper import Keeper

PATIENCE = 30.0  # seconds: whoever ended the program waits for it

_lock = threading.Lock()
# With the process that has them: a fork has its parent's, and does not serve them.
_open: dict[Keeper, int] = {}


def opened(keeper: Keeper) -> None:
    """A session with this keeper gets a worker."""
    with _lock:
        for each in [each for each in _open if _over(each) and each.lost() is None]:
            del _open[each]
        _open[keeper] = os.getpid()


def ended(keeper: Keeper) -> None:
    """It was shut down, and whoever did so heard of all that went wrong."""
    with _lock:
        _open.pop(keeper, None)


async def leave() -> dict[Subject, HoldfastError]:
    """Save what is due in all sessions of this loop; gives what went wrong with it."""
    loop = asyncio.get_running_loop()
    found = [keeper for keeper in _mine() if keeper.loop is loop]
    failures = await asyncio.gather(*map(_leave, found))
    lost = {keeper: each for keeper, each in zip(found, failures, strict=True) if each is not None}
    for keeper in lost:
        ended(keeper)  # told once
    return {keeper.subject: failure for keeper, failure in lost.items()}


def tell(subject: Subject, failure: HoldfastError) -> None:
    """On stderr: there is nobody any more to raise it to."""
    hint = f" ({failure.hint})" if failure.hint else ""
    print(f"holdfast: what {subject} ran last is lost: {failure}{hint}", file=sys.stderr)


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


def _mine() -> list[Keeper]:
    with _lock:
        return [keeper for keeper, process in _open.items() if process == os.getpid()]


def _over(keeper: Keeper) -> bool:
    return keeper.loop is not None and keeper.loop.is_closed()


def _tell_lost() -> None:
    for keeper in _mine():
        if (failure := keeper.lost()) is not None:
            tell(keeper.subject, failure)


# After all threads that are waited for: what was on its way has come to its end.
atexit.register(_tell_lost)
