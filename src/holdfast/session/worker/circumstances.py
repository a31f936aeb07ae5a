"""What a session set in its process, beside its variables: the directory, the environment,
`sys.path`, filters of warnings, limits, handlers of signals, options of libraries.

Only what differs from how the process began is kept, and a restore sets the rest back.
"""

from __future__ import annotations

import _locale
import _signal  # type: ignore[import-not-found]
import gc
import importlib
import os
import re
import sys
import time
import warnings
from typing import Any

from holdfast.session.worker.options import OPTIONS, Option
from holdfast.session.worker.placeholder import Placeholder

# `Any` below: each has a form of its own.

# Handled by the worker itself, or by nobody.
_NOT_OURS = {_signal.SIGINT, _signal.SIGALRM, _signal.SIGKILL, _signal.SIGSTOP}
_SIGNALS = sorted(_signal.valid_signals() - _NOT_OURS)


_decoded: tuple[object, dict[str, str]] = (None, {})  # the environment, and its readable form


def _environment() -> dict[str, str]:
    """Without what is ours. Decoding all of it each time would take longer than the rest."""
    global _decoded
    raw = getattr(os.environ, "_data", None)
    if raw is None or raw != _decoded[0]:
        found = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        _decoded = (None if raw is None else dict(raw), found)
    return _decoded[1]


def _set_environment(wanted: dict[str, str]) -> None:
    for name in _environment().keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)
    time.tzset()


def _directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None  # it was deleted


def _set_directory(wanted: str | None) -> None:
    if wanted is not None and wanted != _directory():
        os.chdir(wanted)


def _path() -> list[str]:
    return list(sys.path)


def _set_path(wanted: list[str]) -> None:
    sys.path[:] = wanted


def _limits() -> tuple[int, float, int]:
    return sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()


def _set_limits(wanted: tuple[int, float, int]) -> None:
    sys.setrecursionlimit(wanted[0])
    sys.setswitchinterval(wanted[1])
    sys.set_int_max_str_digits(wanted[2])


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def _set_umask(wanted: int) -> None:
    os.umask(wanted)


def _filters() -> list[Any]:
    return list(map(_plain, warnings.filters))


def _plain(entry: Any) -> Any:
    """A filter as plain data, which is pickled in no time, where it has the usual form."""
    if type(entry) is not tuple or len(entry) != 5:
        return entry
    action, message, category, module, line = entry
    return action, _text(message), _name(category), _text(module), line


def _name(category: Any) -> Any:
    """Where a library has a category; itself when it is the session's own."""
    if type(category) is not type:
        return category
    home, name = sys.modules.get(category.__module__), category.__name__
    imported = home is not None and getattr(home, "__spec__", None) is not None
    if not imported or getattr(home, name, None) is not category:
        return category
    return category.__module__, name


def _text(pattern: Any) -> Any:
    is_text = type(pattern) is re.Pattern and type(pattern.pattern) is str
    return (pattern.pattern, pattern.flags) if is_text else pattern


def _filter(entry: Any) -> Any:
    """A filter as `warnings` has it. Raises ImportError for what is not there."""
    if type(entry) is not tuple or len(entry) != 5:
        return entry
    action, message, category, module, line = entry
    if type(category) is tuple:
        home, name = category
        category = getattr(importlib.import_module(home), name)
    return action, _pattern(message), category, _pattern(module), line


def _pattern(text: Any) -> Any:
    return re.compile(*text) if type(text) is tuple else text


def _set_filters(wanted: list[Any]) -> None:
    """All that can be; raises what the others raise."""
    made: list[Any] = []
    failure: Exception | None = None
    for entry in wanted:
        try:
            made.append(_filter(entry))
        except (ImportError, AttributeError) as error:
            failure = failure or error
    warnings.filters[:] = made  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]  # as `simplefilter` does it
    if failure is not None:
        raise failure


def _handlers() -> dict[int, Any]:
    """Python's handlers: whatever a library written in C has set is None."""
    ask = _signal.getsignal  # `signal.getsignal` makes an enumeration's member of each first
    found = {number: ask(number) for number in _SIGNALS}
    return {number: handler for number, handler in found.items() if handler is not None}


def _set_handlers(wanted: dict[int, Any]) -> None:
    now = _handlers()
    for number, handler in wanted.items():
        if now.get(number) is not handler:
            import signal  # which takes members of its enumerations, too

            signal.signal(number, handler)


def _collection() -> tuple[bool, tuple[int, int, int]]:
    return gc.isenabled(), gc.get_threshold()


def _set_collection(wanted: tuple[bool, tuple[int, int, int]]) -> None:
    gc.set_threshold(*wanted[1])
    (gc.enable if wanted[0] else gc.disable)()


def _names() -> str:
    return _locale.setlocale(_locale.LC_ALL)


def _set_names(wanted: str) -> None:
    _locale.setlocale(_locale.LC_ALL, wanted)


_SETTINGS = {
    "sys.path": Option(_path, _set_path),
    "directory": Option(_directory, _set_directory),
    "environment": Option(_environment, _set_environment),
    "limits": Option(_limits, _set_limits),
    "umask": Option(_umask, _set_umask),
    "collection": Option(_collection, _set_collection),
    "warnings": Option(_filters, _set_filters),
    "signals": Option(_handlers, _set_handlers),
    "locale": Option(_names, _set_names),
}
NAMES = (*_SETTINGS, *OPTIONS)


class Circumstances:
    """How the process was when the session began, and what may differ now."""

    def __init__(self) -> None:
        self._before = {name: setting.read() for name, setting in _SETTINGS.items()}

    def found(self) -> tuple[dict[str, Any], dict[str, str]]:
        """By name, what the session changed, and why something could not be looked at."""
        changed: dict[str, Any] = {}
        failed: dict[str, str] = {}
        for name in NAMES:
            try:
                now = self._changed(name)
            except Exception as error:  # noqa: BLE001  # the session may have changed the library
                from holdfast.session.worker.reasons import reason_of  # most never need it

                failed[name] = reason_of(error)
            else:
                if now is not None:
                    changed[name] = now
        return changed, failed

    def _changed(self, name: str) -> Any:
        if name in OPTIONS:
            return OPTIONS[name].read()
        now, before = _SETTINGS[name].read(), self._before[name]
        if now == before:
            return None
        return _difference(now, before) if type(now) is dict else now

    def apply(self, name: str, changed: Any | None) -> None:
        """Set one of them as it was; None: as it was in the beginning. Raises what that raises."""
        if name in OPTIONS:
            OPTIONS[name].write(changed)
            return
        before = self._before[name]
        if changed is None:
            changed = before
        elif type(before) is dict:
            changed = {
                **{k: v for k, v in before.items() if k not in changed["delete"]},
                **{k: v for k, v in changed["set"].items() if not isinstance(v, Placeholder)},
            }
        _SETTINGS[name].write(changed)


def _difference(now: dict[Any, Any], before: dict[Any, Any]) -> dict[str, Any]:
    added = {key: value for key, value in now.items() if before.get(key) != value}
    return {"set": added, "delete": [key for key in before if key not in now]}
