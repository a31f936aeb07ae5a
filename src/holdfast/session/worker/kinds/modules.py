"""Modules: imported again, or made again when the session itself made them."""

from __future__ import annotations

import builtins
import gc
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from holdfast.session.worker import rebuild

if TYPE_CHECKING:
    from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction

# The interpreter's own entries, which a new module has by itself.
_OWN = {"__builtins__", "__loader__", "__spec__", "__cached__"}


def dynamic(name: str, registered: bool) -> ModuleType:
    """A module that a session made, still empty."""
    made = ModuleType(name)
    if registered:
        sys.modules[name] = made
    return made


def set_dynamic(made: ModuleType, state: dict[str, object]) -> None:
    """Fill a module."""
    made.__dict__.update(state)
    made.__dict__.setdefault("__builtins__", builtins.__dict__)


def names(module: ModuleType) -> dict[str, object]:
    """The globals of a module's functions."""
    return module.__dict__


def environ() -> os._Environ[str]:
    """The environment of the process."""
    return os.environ


def names_of(value: ModuleType) -> dict[str, object]:
    """A module's own names; the type is asked, so that no user code runs."""
    found: dict[str, object] = ModuleType.__getattribute__(value, "__dict__")
    return found


def import_name(value: object) -> str | None:
    """The name by which a module is imported again; None for what an import does not bring."""
    if not issubclass(type(value), ModuleType):
        return None
    assert isinstance(value, ModuleType)
    own = names_of(value)
    # `_io` calls itself `io`; what it was loaded as is in its spec.
    for name in (own.get("__name__"), getattr(own.get("__spec__"), "name", None)):
        if type(name) is str and sys.modules.get(name) is value:
            return None if name != "__main__" and is_made(value) else name
    return None


def is_made(module: ModuleType) -> bool:
    """Whether a session made this module, so that there is nothing to import it from."""
    own = names_of(module)
    return own.get("__spec__") is None and "__file__" not in own


def owner_of(scope: dict[str, object]) -> ModuleType | None:
    """The module whose globals these are, if there is one; slow, for rare functions."""
    name = scope.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is not None and names_of(module) is scope:
        return module
    for each in gc.get_referrers(scope):
        if issubclass(type(each), ModuleType) and names_of(each) is scope:
            found: ModuleType = each
            return found
    return None


def _module(recorder: Recorder, obj: ModuleType) -> Reduction:
    own = names_of(obj)
    if own is recorder.namespace:
        return rebuild.module, ("__main__",)
    name = import_name(obj)
    if name is not None:
        recorder.local(obj)
        return rebuild.module, (name,)
    called = str(own.get("__name__"))
    state = {name: value for name, value in own.items() if name not in _OWN}
    registered = sys.modules.get(called) is obj
    return dynamic, (called, registered), state, None, None, set_dynamic


def _environ(recorder: Recorder, obj: object) -> Reduction:
    return (environ, ()) if obj is os.environ else recorder.plain(obj)


EXACT: dict[type, Reduce] = {type(os.environ): _environ}
FAMILIES: list[tuple[type, Reduce]] = [(ModuleType, _module)]
