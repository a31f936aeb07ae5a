"""Modules of the user's own: whether a module is one, and what its values were at the import.

A library's values are its own affair, but for its settings. What a module of the user's holds is
part of the work: `helpers.CACHE` may be filled by a function of `helpers`, without a cell that says
so. So each of its values is noted as bytes when it was imported, if there are not too many of them.
"""

from __future__ import annotations

import os
import pickle
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from holdfast.session.worker.interrupts import Interrupted

# `Any` below: values of any type.

MOST = 1 << 20  # bytes of one value; of a larger one nobody tells whether it has changed
_LIBRARIES = ("site-packages", "dist-packages")
_STANDARD = os.path.dirname(os.__file__) + os.sep
_FIXED = {int, float, complex, bool, str, bytes, type(None), range}
_NO_DATA = (ModuleType, type, FunctionType, BuiltinFunctionType)


def is_own(module: Any) -> bool:
    """Whether a module is neither of the standard library nor installed, and has a file."""
    names = ModuleType.__getattribute__(module, "__dict__")
    name, file = names.get("__name__"), names.get("__file__")
    if type(name) is not str or type(file) is not str or name == "__main__":
        return False
    if file.startswith(_STANDARD) or any(each in file for each in _LIBRARIES):
        return False
    return name.partition(".")[0] != "holdfast"


def is_data(name: str, value: Any) -> bool:
    """Whether a name of a module stands for a value that may change inside."""
    special = name.startswith("__") and name.endswith("__")
    return not special and type(value) not in _FIXED and not issubclass(type(value), _NO_DATA)


class _TooLarge(Exception):
    """There is more than is looked at."""


class _Output:
    """Takes so many bytes."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._room = MOST

    def write(self, data: bytes) -> None:
        self._room -= len(data)
        if self._room < 0:
            raise _TooLarge
        self.pieces.append(bytes(data))


def content(value: Any) -> bytes | None:
    """What a value holds, to be compared and to be read again: nothing for too much, None for
    what cannot be pickled."""
    output = _Output()
    try:
        pickle.Pickler(output, 5).dump(value)
    except Interrupted:
        raise
    except _TooLarge:
        return b""
    except BaseException:  # noqa: BLE001  # the user's classes may fail in any way
        return None
    return b"".join(output.pieces)


def read(data: bytes) -> Any:
    """Another object with that content."""
    return pickle.loads(data)  # written by this very process
