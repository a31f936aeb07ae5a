"""Interrupts: SIGINT reaches only the execution it was meant for, and never cuts a frame."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_ID = struct.Struct("=Q")
_handle = _signal.signal  # bound here: a session may put something else in its place


class Interrupted(KeyboardInterrupt):
    """The host's interrupt of a capture or a restore; what user code raises is never this."""


class Interrupts:
    """The host writes the execution's id to a shared page and then sends SIGINT."""

    def __init__(self, page_fd: int) -> None:
        self._page = mmap.mmap(page_fd, _ID.size)
        self._running = 0
        self._shields = 0
        self._pending = False
        self._raises: type[KeyboardInterrupt] = KeyboardInterrupt
        self._came = False

    def install(self) -> None:
        _handle(_signal.SIGINT, self._on_signal)

    @contextmanager
    def running(self, execution_id: int) -> Iterator[None]:
        """Only in this block, and only for this id, an interrupt raises KeyboardInterrupt."""
        # User code may have put its own handler in place; the next cell starts with ours.
        self.install()
        self._pending = False
        self._running = execution_id
        try:
            yield
        finally:
            self._running = 0
            self._pending = False
            self.install()

    def begin(self) -> None:
        """The user's code begins: raise the interrupt of it that came before, whose signal found
        nothing running. Where that is still on its way, it will find nothing either."""
        if self._running and self._wanted() == self._running:
            self._running = 0
            raise self._raises

    @contextmanager
    def working(self, request_id: int) -> Iterator[None]:
        """As `running`, for a capture or a restore: the interrupt raises Interrupted.

        It also does when the interrupt came before the block, or when user code swallowed it.
        """
        self._raises, self._came = Interrupted, False
        try:
            with self.running(request_id):
                # Later ones have been asked for only after this one was given up.
                if self._wanted() >= request_id:
                    raise Interrupted("interrupted")
                yield
                if self._came:
                    raise Interrupted("interrupted")
        finally:
            self._raises = KeyboardInterrupt

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """An interrupt that comes in this block is raised when the block ends."""
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._pending and not self._shields:
            self._pending = False
            raise self._raises

    def _wanted(self) -> int:
        wanted: int
        (wanted,) = _ID.unpack_from(self._page, 0)
        return wanted

    def _on_signal(self, number: int, frame: object) -> None:
        if not self._running or self._wanted() != self._running:
            return  # it was meant for an execution that has ended
        self._came = True
        if self._shields:
            self._pending = True
            return
        raise self._raises
