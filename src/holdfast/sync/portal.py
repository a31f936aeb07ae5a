"""The thread whose event loop runs async work for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.model.errors import UsageError
from holdfast.model.once import once

_T = TypeVar("_T")


class Portal:
    """An event loop in a thread of its own, so that workers are served between calls too."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="holdfast-sync", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run to the end and give its result; Ctrl-C cancels the work and is raised here.

        Raises UsageError on the loop's own thread, where waiting would be for ever.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise UsageError(
                "holdfast.sync was called from one of its own callbacks",
                hint="call it from another thread, or use the async class there",
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise


@once
def portal() -> Portal:
    """The one portal of this process, whichever of its threads asks."""
    return Portal()
