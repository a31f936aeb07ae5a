"""Live Python sessions: run code in a worker, freeze it, bring it back.

Names are loaded on first use, because the worker imports modules of this package and
must not pay for the host's.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes longer to load than most of what is here
if TYPE_CHECKING:
    from holdfast.session.checkpoints import SessionCheckpoint as SessionCheckpoint
    from holdfast.session.errors import CellFailed as CellFailed
    from holdfast.session.errors import WorkerDied as WorkerDied
    from holdfast.session.pool import SessionPool as SessionPool
    from holdfast.session.result import ErrorInfo as ErrorInfo
    from holdfast.session.result import Repr as Repr
    from holdfast.session.result import Result as Result
    from holdfast.session.session import Session as Session

_WHERE = {
    "CellFailed": "errors",
    "ErrorInfo": "result",
    "Repr": "result",
    "Result": "result",
    "Session": "session",
    "SessionCheckpoint": "checkpoints",
    "SessionPool": "pool",
    "WorkerDied": "errors",
}
__all__ = [
    "CellFailed",
    "ErrorInfo",
    "Repr",
    "Result",
    "Session",
    "SessionCheckpoint",
    "SessionPool",
    "WorkerDied",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
