"""Errors of sessions only. Import it where one is raised: few processes need them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.model.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.session.result import ErrorInfo, Result


class WorkerDied(HoldfastError):
    """A worker ended in the middle of a restore."""


class CellFailed(HoldfastError):
    """A cell that was to be checked raised, ran out of time, or lost its worker."""

    def __init__(self, error: ErrorInfo, result: Result) -> None:
        super().__init__(str(error), hint=error.hint or None)
        self.error = error
        self.result = result
        if error.traceback:
            self.add_note(error.traceback.rstrip())


class ScriptStopped(HoldfastError):
    """A cell of a script raised; the cells before it are kept."""
