"""Holdfast freezes running work and brings it back."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # `typing` takes longer to load than most of what is here

__version__ = "0.1.0"

# Public name -> the module that has it. A name is imported when it is first used, so that the
# command line and programs that need one level do not pay for the others.
_PLACES = {
    "Checkpoint": "holdfast.model.checkpoint",
    "HeadMove": "holdfast.model.checkpoint",
    "Manifest": "holdfast.model.checkpoint",
    "Part": "holdfast.model.checkpoint",
    "Item": "holdfast.model.report",
    "Problem": "holdfast.model.report",
    "Report": "holdfast.model.report",
    "Verification": "holdfast.model.report",
    "Subject": "holdfast.model.subject",
    "BadInput": "holdfast.model.errors",
    "Busy": "holdfast.model.errors",
    "CaptureFailed": "holdfast.model.errors",
    "Conflict": "holdfast.model.errors",
    "Corrupt": "holdfast.model.errors",
    "Denied": "holdfast.model.errors",
    "HoldfastError": "holdfast.model.errors",
    "LeaseLost": "holdfast.model.errors",
    "Owned": "holdfast.model.errors",
    "NotFound": "holdfast.model.errors",
    "Partial": "holdfast.model.errors",
    "StorageFull": "holdfast.model.errors",
    "Unsupported": "holdfast.model.errors",
    "UsageError": "holdfast.model.errors",
    "Bundle": "holdfast.bundle",
    "Sandbox": "holdfast.client",
    "Session": "holdfast.session",
    "SessionPool": "holdfast.session",
    "AsyncStateManager": "holdfast.state",
    "StateManager": "holdfast.state",
    "Lease": "holdfast.store.leases",
    "Owner": "holdfast.model.owner",
    "Store": "holdfast.store",
    "open_store": "holdfast.store",
    # What `%load_ext holdfast` and `%unload_ext holdfast` call in IPython.
    "load_ipython_extension": "holdfast.integrations.ipython",
    "unload_ipython_extension": "holdfast.integrations.ipython",
}

__all__ = [
    "AsyncStateManager",
    "BadInput",
    "Bundle",
    "Busy",
    "CaptureFailed",
    "Checkpoint",
    "Conflict",
    "Corrupt",
    "Denied",
    "HeadMove",
    "HoldfastError",
    "Item",
    "Lease",
    "LeaseLost",
    "Manifest",
    "NotFound",
    "Owned",
    "Owner",
    "Part",
    "Partial",
    "Problem",
    "Report",
    "Sandbox",
    "Session",
    "SessionPool",
    "StateManager",
    "StorageFull",
    "Store",
    "Subject",
    "Unsupported",
    "UsageError",
    "Verification",
    "__version__",
    "open_store",
]

if TYPE_CHECKING:
    from holdfast.bundle import Bundle
    from holdfast.client import Sandbox
    from holdfast.model.checkpoint import Checkpoint, HeadMove, Manifest, Part
    from holdfast.model.errors import (
        BadInput,
        Busy,
        CaptureFailed,
        Conflict,
        Corrupt,
        Denied,
        HoldfastError,
        LeaseLost,
        NotFound,
        Owned,
        Partial,
        StorageFull,
        Unsupported,
        UsageError,
    )
    from holdfast.model.owner import Owner
    from holdfast.model.report import Item, Problem, Report, Verification
    from holdfast.model.subject import Subject
    from holdfast.session import Session, SessionPool
    from holdfast.state import AsyncStateManager, StateManager
    from holdfast.store import Store, open_store
    from holdfast.store.leases import Lease


def __getattr__(name: str) -> object:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(place), name)
    globals()[name] = value  # found once; the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
