"""The state level: an application's own state, saved as readable JSON or on a store."""

from holdfast.model.difference import ABSENT
from holdfast.state.async_manager import AsyncStateManager
from holdfast.state.autosave import Autosave
from holdfast.state.changes import Change
from holdfast.state.lineage import StateCheckpoint
from holdfast.state.manager import StateManager
from holdfast.state.registry import directories
from holdfast.state.types import register

__all__ = [
    "ABSENT",
    "AsyncStateManager",
    "Autosave",
    "Change",
    "StateCheckpoint",
    "StateManager",
    "directories",
    "register",
]
