"""The state level: an application's own state, saved as readable JSON or on a store."""

from holdfast.state.lineage import StateCheckpoint
from holdfast.state.manager import StateManager
from holdfast.state.registry import directories
from holdfast.state.types import register

__all__ = ["StateCheckpoint", "StateManager", "directories", "register"]
