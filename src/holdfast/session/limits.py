"""Limits of a session: how much memory a worker may use, and how long a cell may compute.

They keep a mistake from taking the machine. They are no wall against code that wants to get
past them: a session is no security boundary.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from holdfast.model.errors import BadInput
from holdfast.session import checks
from holdfast.session.process import WorkerProcess

LEAST_MEMORY = 64 << 20  # below this, Python and the worker's own modules do not run


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """None means no limit."""

    memory: int | None = None  # bytes that the worker may write to
    cpu: float | None = None  # seconds of CPU time for one cell, of all the worker's threads

    @classmethod
    def of(cls, memory: object, cpu: object) -> Limits:
        """Raises BadInput for what is no limit."""
        limits = cls(
            memory=checks.size("memory_limit", memory), cpu=checks.seconds("cpu_limit", cpu)
        )
        if limits.memory is not None and limits.memory < LEAST_MEMORY:
            raise BadInput(
                f"memory_limit is {limits.memory} bytes, too little for Python itself",
                hint=f"{LEAST_MEMORY} bytes or more",
            )
        if limits.cpu is not None and limits.cpu <= 0:
            raise BadInput(f"cpu_limit is {limits.cpu:g}, not more than 0 seconds")
        return limits


class CpuWatch:
    """How much of its CPU time a cell has left."""

    def __init__(self, limits: Limits, worker: WorkerProcess) -> None:
        self._worker = worker
        self._limit = limits.cpu
        self._end = math.inf if limits.cpu is None else worker.cpu_seconds + limits.cpu

    @property
    def exceeded(self) -> bool:
        return self._limit is not None and self._worker.cpu_seconds >= self._end

    @property
    def words(self) -> str:
        return f"used more than {self._limit:g} s of CPU time"

    def next_look(self) -> float | None:
        """The time in which the cell cannot use up what is left, on all cores together."""
        if self._limit is None:
            return None
        left = self._end - self._worker.cpu_seconds
        return max(left / (os.cpu_count() or 1), 0.005)
