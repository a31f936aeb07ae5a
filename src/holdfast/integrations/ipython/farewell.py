"""The end of a kernel: what is on its way arrives first.

A kernel that is asked to end kills its children, so the copies that captures are made in, and later
no thread begins anything any more; so this is the moment for the last checkpoint.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from holdfast.integrations.ipython.notebook import Notebook

SECONDS = 60.0  # front ends have less patience, and kill the kernel then
_LOOK = 0.02


class Farewell:
    """Stands before a kernel's own `do_shutdown`, where there is a kernel."""

    def __init__(self, shell: Any, notebook: Notebook) -> None:
        self._kernel: Any = getattr(shell, "kernel", None)  # none in a terminal
        self._notebook = notebook

    def install(self) -> None:
        if self._kernel is not None:
            self._kernel.do_shutdown = self._shutdown

    def uninstall(self) -> None:
        if self._kernel is not None:
            del self._kernel.do_shutdown  # that of its class is there again

    def _shutdown(self, restart: bool) -> Any:
        """In the thread that hears requests beside the cells; in old kernels, in the main one."""
        notebook = self._notebook
        if threading.current_thread() is threading.main_thread():
            notebook.settle()
        else:
            notebook.hurry()
            end = time.monotonic() + SECONDS
            # The main thread makes what was put off, as soon as there is room.
            while notebook.unsaved and time.monotonic() < end:
                time.sleep(_LOOK)
        kind: Any = type(self._kernel)
        return kind.do_shutdown(self._kernel, restart)
