"""What happens to a process when the one that started it ends."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` is all of this as enumerations
import ctypes
import os

_PR_SET_PDEATHSIG = 1


def end_with(parent: int, number: int = _signal.SIGKILL) -> bool:
    """Have the kernel send this process a signal, by default one that ends it, when its parent
    ends, whatever the user's code is doing then.

    False when the parent has gone already.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent
