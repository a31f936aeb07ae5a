"""Autosave: the state is saved by itself, at intervals, at exit and before SIGTERM ends it all.

A signal's handler saves nothing itself: it may run in the middle of a save. It asks the saving
thread to, and the signal takes its course afterwards.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from holdfast.model.errors import BadInput, HoldfastError

log = logging.getLogger("holdfast.state")

_SHORTEST = 0.01
_NOTICE = 0.2  # seconds for the main thread to notice a signal


class Autosave:
    """Calls `save` by itself until it is stopped. Also a context manager, which stops it.

    Signals can be caught only where this is made in the main thread; elsewhere that is logged.
    """

    def __init__(self, save: Callable[[], object], interval: float, signals: bool = True) -> None:
        """Raises BadInput for an impossible interval."""
        if isinstance(interval, bool) or not isinstance(interval, int | float):
            raise BadInput(f"an interval is a number of seconds, not {interval!r}")
        if not _SHORTEST <= interval <= threading.TIMEOUT_MAX:
            raise BadInput(f"an interval is at least {_SHORTEST} seconds, not {interval!r}")
        self._save = save
        self._interval = interval
        self._process = os.getpid()
        self._wake = threading.Event()
        self._stopped = False
        self._told = False  # by SIGTERM, to save
        self._passes = False  # the next SIGTERM is not for us
        self._passed = threading.Event()
        self._before: signal.Handlers | Callable[[int, FrameType | None], object] | int | None
        self._before = None
        self._thread = threading.Thread(target=self._run, name="holdfast-autosave", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)
        if signals:
            self._listen()

    def stop(self) -> None:
        """Save once more, and no longer by itself. Raises what saving raises."""
        if self._stopped:
            return
        self._end()
        if self._process == os.getpid():
            self._save()

    def __enter__(self) -> Autosave:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # inside

    def _run(self) -> None:
        while True:
            self._wake.wait(self._interval)
            self._wake.clear()
            if self._stopped:
                return
            told, self._told = self._told, False
            try:
                self._try()
            finally:
                if told:
                    self._pass_on()

    def _pass_on(self) -> None:
        """Let SIGTERM take its course, now that the state is saved."""
        if self._before == signal.SIG_IGN:
            return
        if not callable(self._before):
            import ctypes  # takes 10 ms, and is needed once

            # The main thread may sleep for long, and its handler would run only after that.
            ctypes.pythonapi.PyOS_setsig(int(signal.SIGTERM), None)  # the default action
            os.kill(os.getpid(), signal.SIGTERM)
            return
        # The application's own handler runs in the main thread. A signal that comes while the main
        # thread is about to sleep does not wake it, so it is sent until it is noticed.
        self._passes = True
        while self._passes and not self._stopped:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            self._passed.wait(_NOTICE)
        self._passed.clear()

    def _try(self) -> None:
        try:
            self._save()
        except HoldfastError as error:
            log.error("the state could not be saved by itself: %s", error)
        except Exception:  # code of the application runs for it: a property, `pack=`
            log.exception("the state could not be saved by itself")

    def _end(self) -> None:
        self._stopped = True
        self._wake.set()
        atexit.unregister(self._at_exit)
        if self._process == os.getpid():
            if self._thread is not threading.current_thread():
                self._thread.join()
            self._unlisten()

    def _at_exit(self) -> None:
        # A forked child has this by inheritance, and the state is its parent's.
        if self._process == os.getpid() and not self._stopped:
            self._end()
            self._try()

    # signals

    def _listen(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            log.warning("autosave was begun outside the main thread: SIGTERM will not be noticed")
            return
        self._before = signal.signal(signal.SIGTERM, self._on_signal)

    def _unlisten(self) -> None:
        if self._before is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._before)
        self._before = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        saves = self._process == os.getpid() and not self._stopped and self._thread.is_alive()
        if saves and not self._passes:
            self._told = True
            self._wake.set()
            return
        self._passes = False
        self._passed.set()
        before = self._before
        if callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
