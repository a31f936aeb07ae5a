"""Drills: a checkpoint is proved by bringing it back elsewhere, and comparing."""

from holdfast.drill.drill import Drill, drill

__all__ = ["Drill", "drill"]
