"""Subjects to play with: a state that went through its stages, and a session with some data."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.model.errors import Conflict

if TYPE_CHECKING:
    from holdfast.store import Store

NAME = "example"

# By the reason of the checkpoint after each: cells. The third goes too far, and is taken back.
_CELLS = {
    "samples read": """
        import numpy as np
        rng = np.random.default_rng(7)
        signal = np.cumsum(rng.normal(size=4000))
        settings = {"window": 25, "unit": "mV"}
        notes = ["read 4000 samples"]
    """,
    "smoothed": """
        def smooth(values, window):
            "The running mean."
            return np.convolve(values, np.ones(window) / window, "same")

        trend = smooth(signal, settings["window"])
        notes.append("smoothed")
    """,
    "clipped": """
        signal = signal.clip(*np.quantile(signal, [0.05, 0.8]))
        settings["clip"] = 0.8
        notes.append("clipped, perhaps too hard")
    """,
    "clipped a little": """
        signal = signal.clip(*np.quantile(signal, [0.01, 0.99]))
        settings["clip"] = 0.99
        notes.append("clipped a little")
        peak = float(signal.max())
    """,
}


async def make(store: Store) -> list[str]:
    """Write the example; the names of its subjects. Raises Conflict when it is there already."""
    subjects = [f"session/{NAME}", f"state/{NAME}"]
    for subject in subjects:
        if await asyncio.to_thread(store.list, subject, None, 1):
            raise Conflict(
                f"{subject} is there already", hint="delete its checkpoints to make it anew"
            )
    await asyncio.to_thread(_make_state, store)
    await _make_session(store)
    return subjects


def _make_state(store: Store) -> None:
    from holdfast.state import StateManager

    manager = StateManager(NAME, store=store)
    for number, stage in enumerate(("collect", "clean", "train", "evaluate"), 1):
        manager.set_state("current_stage", stage)
        manager.set_state("progress", number / 4)
        manager.set_state("rows", {"read": 12_000, "kept": 12_000 - 350 * number})
        manager.set_state("scores", [round(0.61 + 0.05 * each, 2) for each in range(number)])
        manager.checkpoint(f"after {stage}")
    manager.rollback()
    manager.set_state("current_stage", "train")
    manager.set_state("learning_rate", 0.0003)
    manager.checkpoint("trained again, slower")


async def _make_session(store: Store) -> None:
    from holdfast.session import Session

    async with Session(NAME, store=store) as session:
        for reason, cell in _CELLS.items():
            if reason == "clipped a little":
                await session.rollback()
            await session.execute(cell, check=True)
            await session.checkpoint(reason=reason)
