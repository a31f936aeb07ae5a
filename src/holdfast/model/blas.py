"""Importing numpy where others need the processor, too.

The threads that its OpenBLAS starts look for work without a pause, and rest only after 2^26 cycles:
for as long as the rest of the import takes they keep a processor busy with nothing. On a machine of
two, a session that comes back waited a sixth longer for that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_SETTING = "OPENBLAS_THREAD_TIMEOUT"
_CYCLES = "20"  # 2^20, a third of a millisecond: calls that follow closely find them awake


@contextmanager
def resting() -> Iterator[None]:
    """What is imported inside has threads that rest sooner, unless somebody has said how soon."""
    if _SETTING in os.environ:
        yield
        return
    os.environ[_SETTING] = _CYCLES  # read once, when the library is loaded
    try:
        yield
    finally:
        os.environ.pop(_SETTING, None)
