"""The state manager for asyncio: the same, with `await` where the disk is waited for.

Derived from `StateManager` by rule, so that the two cannot drift. The state is taken before the
loop goes on with anything else; writing and syncing happen in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from holdfast.state.lineage import StateCheckpoint
from holdfast.state.manager import Begun, StateManager

# What takes the state, and what then saves it. The rest of what waits for the disk takes nothing.
_BEGUN = {"checkpoint": "begin_checkpoint", "fork": "begin_fork", "save_state": "begin_save"}
_WAITS = ("list_checkpoints", "rollback", "diff")


class _Order:
    """States are written in the order in which they were taken; in each loop that there is."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    def turn(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock


class AsyncStateManager:
    """`StateManager` for asyncio. `set_state`, `get_state`, `state_data` and all attributes are the
    same; `checkpoint`, `rollback`, `fork`, `diff`, `save_state`, `list_checkpoints` and `load` are
    awaited, and `stage` is an asynchronous context manager."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__["_manager"] = StateManager(*args, **kwargs)
        self.__dict__["_order"] = _Order()

    @classmethod
    async def load(cls, session_id: str, **given: Any) -> AsyncStateManager:
        found: AsyncStateManager
        found = _twin(await asyncio.to_thread(StateManager.load, session_id, **given))
        return found

    @asynccontextmanager
    async def stage(self, name: str) -> AsyncIterator[StateCheckpoint]:
        stage = self._manager.stage(name)
        entering = asyncio.ensure_future(asyncio.to_thread(stage.__enter__))
        try:
            entry = await asyncio.shield(entering)
        except asyncio.CancelledError as error:
            # The thread enters all the same, and nobody else would leave the stage again.
            await asyncio.wait([entering])
            if entering.exception() is None:
                await asyncio.to_thread(stage.__exit__, type(error), error, error.__traceback__)
            raise
        try:
            yield entry
        except BaseException as error:
            await asyncio.to_thread(stage.__exit__, type(error), error, error.__traceback__)
            raise
        await asyncio.to_thread(stage.__exit__, None, None, None)

    def __getattr__(self, name: str) -> Any:
        if name == "_manager":
            raise AttributeError(name)
        return getattr(self._manager, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._manager, name, value)

    def __repr__(self) -> str:
        return f"<AsyncStateManager {self.session_id}>"


def _twin(value: Any) -> Any:
    """The twin of a manager; anything else as it is."""
    if not isinstance(value, StateManager):
        return value
    made = object.__new__(AsyncStateManager)
    made.__dict__["_manager"] = value
    made.__dict__["_order"] = _Order()
    return made


def _awaited(name: str) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(getattr(StateManager, name))
    async def call(self: AsyncStateManager, *args: Any, **kwargs: Any) -> Any:
        begin = _BEGUN.get(name)
        if begin is None:
            async with self._order.turn() if name == "rollback" else contextlib.nullcontext():
                return await asyncio.to_thread(getattr(self._manager, name), *args, **kwargs)
        finish = getattr(self._manager, begin)(*args, **kwargs)
        try:
            async with self._order.turn():
                return _twin(await asyncio.to_thread(finish))
        except asyncio.CancelledError:
            if isinstance(finish, Begun):
                # Beside the loop: whoever writes it just now holds the manager's lock.
                await asyncio.shield(asyncio.to_thread(finish.drop))
            raise

    return call


# What `help` and completion show; the methods below get theirs one by one.
functools.update_wrapper(AsyncStateManager.__init__, StateManager.__init__)
for _name in (*_BEGUN, *_WAITS):
    setattr(AsyncStateManager, _name, _awaited(_name))
