"""Loggers: found by their name, and set up as they were."""

from __future__ import annotations

import logging

from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction
from holdfast.session.worker.placeholder import Placeholder


def logger(name: str | None) -> logging.Logger:
    """The logger of that name; the root without one."""
    return logging.getLogger(name)


def set_logger(made: logging.Logger, state: dict[str, object]) -> None:
    """Set a logger up; what it was set up with before is gone."""
    level = state.get("level")
    made.setLevel(level if isinstance(level, int) else logging.NOTSET)
    made.propagate = bool(state.get("propagate", True))
    made.disabled = bool(state.get("disabled"))
    for name in ("handlers", "filters"):
        found = state.get(name)
        # One that could not be saved would make every message an error.
        there = found if isinstance(found, list) else []
        getattr(made, name)[:] = [each for each in there if not isinstance(each, Placeholder)]


def _logger(recorder: Recorder, obj: logging.Logger) -> Reduction:
    name = None if isinstance(obj, logging.RootLogger) else obj.name
    if logging.getLogger(name) is not obj:
        return recorder.plain(obj)
    found = {
        "level": obj.level,
        "propagate": obj.propagate,
        "disabled": obj.disabled,
        "handlers": list(obj.handlers),
        "filters": list(obj.filters),
    }
    return logger, (name,), found, None, None, set_logger


EXACT: dict[type, Reduce] = {logging.Logger: _logger, logging.RootLogger: _logger}
