"""Open files: volumes that were read lately stay open, so that reading on costs no look-up."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from holdfast.model.errors import from_os_error
from holdfast.store.backends.files import open_file

_LIMIT = 64

Find = Callable[[bytes], Path]  # where a volume is; raises NotFound


class OpenFiles:
    """Descriptors by volume, the last ones used. Thread-safe."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._files: OrderedDict[bytes, int] = OrderedDict()
        self._pid = os.getpid()

    def borrow(self, volume: bytes) -> int:
        """A descriptor that the caller closes; the file itself is kept open, too."""
        with self._lock:
            if self._pid != os.getpid():
                # The descriptors are the parent's business; ours are opened anew.
                self._pid = os.getpid()
                self._files = OrderedDict()
            fd = self._files.get(volume)
            if fd is None:
                try:
                    fd = open_file(self._find(volume))
                except OSError as error:
                    raise from_os_error(error, "opening a volume") from error
                self._files[volume] = fd
                if len(self._files) > _LIMIT:
                    _, oldest = self._files.popitem(last=False)
                    os.close(oldest)
            self._files.move_to_end(volume)
            return os.dup(fd)

    def forget(self, volume: bytes) -> None:
        """It is about to be deleted."""
        with self._lock:
            fd = self._files.pop(volume, None)
            if fd is not None:
                os.close(fd)

    def close(self) -> None:
        with self._lock:
            for fd in self._files.values():
                os.close(fd)
            self._files.clear()

    def __del__(self) -> None:
        # Nobody closes the store of a session that was given an address. In a forked child the
        # numbers may be somebody else's by now.
        if self._pid == os.getpid():
            self.close()
