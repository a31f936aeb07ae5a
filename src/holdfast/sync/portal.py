"""The thread whose event loop runs async work for callers that have none."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
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
        self._process = os.getpid()
        # Before those of `concurrent.futures`, after which no thread can be had: then nothing can
        # be saved any more. `atexit` comes only after those.
        register = getattr(threading, "_register_atexit", atexit.register)
        with suppress(RuntimeError):  # the program is ending already
            register(self._leave)

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

    def _leave(self) -> None:
        """The program ends: save what is due in sessions that nobody ended, and tell the rest."""
        if os.getpid() != self._process:
            return  # a fork has no such thread
        from holdfast.session import leaving

        work = asyncio.run_coroutine_threadsafe(leaving.leave(), self._loop)
        try:
            lost = work.result(leaving.PATIENCE + 5)
        except TimeoutError:  # a callback of the program does not let the loop go on
            print("holdfast: sessions could not be saved when the program ended", file=sys.stderr)
            return
        for subject, failure in lost.items():
            leaving.tell(subject, failure)


@once
def portal() -> Portal:
    """The one portal of this process, whichever of its threads asks."""
    return Portal()
