"""Versions: an application's own schema of its state, and the steps from older ones. Pure.

A saved state says with which version it was saved. When a later version of the application loads
it, each step of the chain makes it one version newer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.model.errors import BadInput, Unsupported

FIRST = 1
# A step takes the state of one version and gives that of the next; of any type by nature.
Step = Callable[[dict[str, Any]], dict[str, Any]]


class Versions:
    """Which version this application is at, and how it gets there."""

    def __init__(self, current: int = FIRST, steps: Mapping[int, Step] | None = None) -> None:
        """Raises BadInput for a chain that does not lead to the current version."""
        if type(current) is not int or current < FIRST:
            raise BadInput(f"version is a number of at least {FIRST}, not {current!r}")
        self.current = current
        self._steps = dict(steps or {})
        for version, step in self._steps.items():
            if type(version) is not int or not FIRST <= version < current:
                raise BadInput(
                    f"migrations[{version!r}] leads nowhere: the state is at version {current}",
                    hint="migrations[1] makes a state of version 1 one of version 2",
                )
            if not callable(step):
                raise BadInput(f"migrations[{version}] is no function: {step!r}")

    def bring_up(self, state: dict[str, Any], version: int) -> dict[str, Any]:
        """The state of that version as the current one. Raises Unsupported or BadInput."""
        if version > self.current:
            raise Unsupported(
                f"the state was saved at version {version}, this application is at {self.current}",
                hint="use the newer application, or roll back to an older checkpoint",
            )
        for each in range(version, self.current):
            step = self._steps.get(each)
            if step is None:
                raise Unsupported(
                    f"the state was saved at version {version}, and there is no migration from"
                    f" {each} to {each + 1}",
                    hint=f"StateManager(..., migrations={{{each}: ...}})",
                )
            state = step(state)
            if not isinstance(state, dict):
                raise BadInput(f"migrations[{each}] gave {type(state).__name__}, not a dict")
        return state
