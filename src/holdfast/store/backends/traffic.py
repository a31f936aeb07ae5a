"""Traffic: what went over the network for a store, for whoever wants to show progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[int, int], None]  # bytes sent and received so far


class Traffic:
    """Counts bytes and requests. Listeners are called after each request, in its thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self.sent = 0
        self.received = 0
        self.requests = 0

    @contextmanager
    def watched(self, listener: Listener) -> Iterator[None]:
        """Tell a listener of what goes on inside this block."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def count(self, *, sent: int = 0, received: int = 0) -> None:
        with self._lock:
            self.sent += sent
            self.received += received
            self.requests += 1
            now = self.sent, self.received
        for listener in list(self._listeners):
            listener(*now)
