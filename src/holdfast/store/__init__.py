"""The store: where every level keeps its checkpoints."""

from holdfast.store.opening import open_store
from holdfast.store.store import Store, SubjectSummary

__all__ = ["Store", "SubjectSummary", "open_store"]
