"""Which family an object belongs to. With all of them: only a capture needs this."""

from __future__ import annotations

from holdfast.session.worker.kinds import (
    arrays,
    caches,
    classes,
    contexts,
    databases,
    exceptions,
    figures,
    files,
    formulas,
    frames,
    functions,
    generators,
    hints,
    iterators,
    lazily,
    loggers,
    matches,
    memory,
    modules,
    shells,
    sockets,
    subarrays,
    synchronization,
    tensors,
    weak,
    windows,
)
from holdfast.session.worker.kinds.contract import Reduce
from holdfast.session.worker.texts import type_module

_EXACT: dict[type, Reduce] = {
    **functions.EXACT,
    **caches.EXACT,
    **contexts.EXACT,
    **exceptions.EXACT,
    **files.EXACT,
    **generators.EXACT,
    **hints.EXACT,
    **iterators.EXACT,
    **loggers.EXACT,
    **matches.EXACT,
    **memory.EXACT,
    **modules.EXACT,
    **synchronization.EXACT,
    **weak.EXACT,
    **windows.EXACT,
}
_FAMILIES: list[tuple[type, Reduce]] = [
    (type, classes.reduce_class),
    *exceptions.FAMILIES,
    *memory.FAMILIES,
    *modules.FAMILIES,
    *synchronization.FAMILIES,
]
# Types of libraries that only some sessions load, by module and name.
_NAMED: dict[tuple[str, str], Reduce] = {
    ("numpy", "ndarray"): arrays.reduce_array,
    ("numpy", "void"): subarrays.reduce_row,
    ("numpy", "finfo"): arrays.reduce_limits,
    ("IPython.terminal.interactiveshell", "TerminalInteractiveShell"): shells.reduce_shell,
    ("ipykernel.zmqshell", "ZMQInteractiveShell"): shells.reduce_shell,
    ("matplotlib.cbook", "CallbackRegistry"): figures.reduce_callbacks,
    ("random", "SystemRandom"): iterators.reduce_system_random,
    ("sqlite3", "Connection"): databases.reduce_connection,
    ("socket", "socket"): sockets.reduce_socket,
    ("subprocess", "Popen"): synchronization.reduce_process,
    ("torch", "Tensor"): tensors.reduce_tensor,
    ("torch.nn.parameter", "Parameter"): tensors.reduce_tensor,
    ("torch.storage", "UntypedStorage"): tensors.reduce_storage,
    **frames.NAMED,
}
# The same for whatever descends from them.
_BASES: dict[tuple[str, str], Reduce] = {**frames.BASES, **figures.BASES, **formulas.BASES}


def family(kind: type) -> Reduce | None:
    """How objects of this type are taken apart; None when their own way will do."""
    found = _EXACT.get(kind)
    if found is not None:
        return found
    for base, reduce in _FAMILIES:
        if issubclass(kind, base):
            return reduce
    named = _NAMED.get((type_module(kind), type.__dict__["__name__"].__get__(kind)))
    named = named or lazily.reducer(kind)
    return _inherited(kind) if named is None else named


def _inherited(kind: type) -> Reduce | None:
    """The family of a type that a library, or the session, derived from one of a library's."""
    if arrays.is_subclass(kind):
        return subarrays.reduce_subclass
    for base in type.mro(kind):
        found = _BASES.get((type_module(base), type.__dict__["__name__"].__get__(base)))
        if found is not None:
            return found
    return formulas.reduce_parts if formulas.refuses(kind) else None
