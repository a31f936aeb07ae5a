"""Which libraries' native threads do not live through a fork of this process.

A fork has only the thread that forked. A library that keeps native threads waits in the fork for
threads that are not there, without using the processor, for ever. `LIBRARIES` says what is done
about each:

- GNU OpenMP: its team of threads is ended before the fork, and the library makes a new one when it
  computes again, here as in the fork. So whatever a capture runs there works, also the user's own
  code. The runtime is found by its file's name, so libraries that are not in the table are covered.
- HERE: the pool of threads cannot be ended. Captures that meet such objects are made in the
  process itself (`ProcessCopies`).
- WHOLE: the library notices a fork by itself, or pickles its objects without its threads.

What is in no table shows itself: a copy that stands still is ended by whoever waits for it, and the
type that it was at is remembered.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Mapping

from holdfast.session.worker.interrupts import Interrupted
from holdfast.session.worker.texts import type_module

OPENMP, HERE, WHOLE = "openmp", "here", "whole"
LIBRARIES = {
    "catboost": WHOLE,  # a pool of its own, which pickling does not use
    "duckdb": WHOLE,  # the same; its connections are not pickled at all
    "faiss": OPENMP,
    "grpc": WHOLE,  # its channels are not pickled
    "lightgbm": OPENMP,
    "numpy": WHOLE,  # OpenBLAS ends its threads before a fork by itself
    "polars": HERE,  # Rayon's pool puts the pieces of a frame together when it is pickled
    "scipy": WHOLE,
    "sklearn": OPENMP,
    "torch": OPENMP,
    "xgboost": OPENMP,
}
_HERE = frozenset(name for name, way in LIBRARIES.items() if way == HERE)

_HARD = 2  # of `omp_pause_resource_all`: the threads end
_libc = ctypes.CDLL(None)


class Held(Interrupted):
    """A copy of the process has met an object that only the process itself can pickle."""


class _Loaded(ctypes.Structure):
    """The beginning of what the dynamic linker tells of a loaded file."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


_Look = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)


class _Teams:
    """The OpenMP runtimes of this process, of which each library may bring its own."""

    def __init__(self) -> None:
        self._modules = 0  # that were imported at the last look
        # `pause` of each runtime by the name of its file.
        self._pauses: dict[bytes, ctypes._NamedFuncPointer] = {}

    def end(self) -> None:
        """Let the threads that compute for this one end; there are others as soon as it computes
        again. Nothing happens inside of a computation."""
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self._find()
        for pause in self._pauses.values():
            pause(_HARD)

    def _find(self) -> None:
        names: list[bytes] = []

        def look(loaded: object, size: int, data: object) -> int:
            name = loaded.contents.name or b""  # type: ignore[attr-defined]  # a pointer
            if b"libgomp" in name.rpartition(b"/")[2]:
                names.append(name)
            return 0

        _libc.dl_iterate_phdr(_Look(look), None)
        for name in names:
            if name not in self._pauses:
                runtime = ctypes.CDLL(os.fsdecode(name), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
                pause = getattr(runtime, "omp_pause_resource_all", None)  # since OpenMP 5
                if pause is not None:
                    self._pauses[name] = pause


_teams = _Teams()


def end_teams() -> None:
    """To be called before a fork."""
    _teams.end()


def is_held(kind: type, known: Iterable[str] = ()) -> bool:
    """Whether objects of this type are to be pickled in the process itself; `known` are types that
    a copy stood still at."""
    if name_of(kind) in known:
        return True
    return any(_root(each) in _HERE for each in type.mro(kind)) if _loaded() else False


def holds(namespace: Mapping[str, object]) -> bool:
    """Whether a variable is such an object. (What is inside of others the copy finds.)"""
    if not _loaded():
        return False
    return any(_root(type(value)) in _HERE for value in list(namespace.values()))


def name_of(kind: type) -> str:
    """A type as it is remembered."""
    return f"{type_module(kind)}.{type.__dict__['__qualname__'].__get__(kind)}"


def _loaded() -> bool:
    return not _HERE.isdisjoint(sys.modules)


def _root(kind: type) -> str:
    return type_module(kind).partition(".")[0]
