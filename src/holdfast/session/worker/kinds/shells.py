"""The shell of IPython or Jupyter that a session runs in: the one that is there."""

from __future__ import annotations

import sys
from typing import Any

from holdfast.session.worker.kinds.contract import Recorder, Reduction


class NoShell(Exception):
    """The session is not in an IPython shell any more."""


def shell() -> Any:  # `Any`: IPython may not even be installed
    """The shell that is running. Raises NoShell."""
    running = getattr(sys.modules.get("IPython"), "get_ipython", None)
    found = running() if running is not None else None
    if found is None:
        raise NoShell("there is no IPython shell here")
    return found


def reduce_shell(recorder: Recorder, obj: object) -> Reduction:
    """By name: it belongs to the kernel, not to the session."""
    recorder.local(obj)
    return shell, ()
