"""A process that is made to stand still while nobody needs it.

The kernel of a sandbox of gVisor looks at the time again and again, also when nothing runs in it:
3 to 4 % of a processor.
"""

from __future__ import annotations

import os
import signal


class Still:
    """One process, by a descriptor: its number may be another's when it has ended."""

    def __init__(self, pid: int) -> None:
        """Raises OSError where it has ended."""
        self._fd: int | None = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(self._fd, signal.SIGSTOP)
        except OSError:
            self.forget()
            raise

    def go(self) -> None:
        """Let it go on. Raises OSError where it has ended."""
        if self._fd is not None:
            signal.pidfd_send_signal(self._fd, signal.SIGCONT)
            self.forget()

    def forget(self) -> None:
        """Leave it as it is. May be called twice."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
