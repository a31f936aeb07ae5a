"""Operations that fail at one of their steps: the steps are counted where they happen."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.model.errors import HoldfastError
from holdfast.model.fault_points import listening
from holdfast.sandbox import limits

Operation = Callable[[], Awaitable[object]]
NAME = "an operation"


class InjectedError(HoldfastError):
    """What a step fails with."""


@dataclass
class Steps:
    """The steps of one run, of which at most one fails."""

    at: int | None = None
    way: str = "error"
    only: str = ""  # how the names of the steps end that count
    kills: Path = Path()  # below which are the boxes whose processes a `kill` ends
    seen: list[str] = field(default_factory=list)
    result: object = None
    error: BaseException | None = None

    @property
    def struck(self) -> bool:
        return self.at is not None and self.at < len(self.seen)

    @property
    def what(self) -> str:
        step = self.seen[self.at] if self.at is not None and self.struck else "no step"
        return f"{self.way} at {self.at}, {step}; {self.error!r}"

    async def run(self, operation: Operation) -> Steps:
        with listening(self._step):
            task = asyncio.create_task(self._timed(operation), name=NAME)
        self._task = task
        try:
            self.result = await task
        except BaseException as error:  # noqa: BLE001  it is what is looked at
            self.error = error
        return self

    async def _timed(self, operation: Operation) -> object:
        async with asyncio.timeout(None) as self._timeout:
            return await operation()

    def _step(self, name: str) -> None:
        task = asyncio.current_task()
        if task is None or task.get_name() != NAME:
            return  # what is made ready or cleared away beside it
        if not name.endswith(self.only):
            return
        self.seen.append(name)
        if len(self.seen) - 1 == self.at:
            getattr(self, f"_{self.way}")()

    def _error(self) -> None:
        raise InjectedError("it was made to fail")

    def _full(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _cancel(self) -> None:
        self._task.cancel()

    def _timeout_(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time())

    def _kill(self) -> None:
        for box in self.kills.glob("*"):
            for pid in members(box.name):
                os.kill(pid, signal.SIGKILL)


def members(box: str) -> list[int]:
    """The processes of a box."""
    groups = limits.left_by(box).folders
    text = [(group / "cgroup.procs").read_text() for group in groups[:1]]
    return [int(each) for each in "".join(text).split()]
