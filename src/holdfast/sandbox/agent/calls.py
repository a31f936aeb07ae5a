"""Filters of system calls: which of them fail, for a thread and for all that it starts.

The kernel asks a filter before each call, and nothing takes it away again. Written out as the
kernel reads it, because a root has no library for it.
"""

from __future__ import annotations

import ctypes
from struct import pack

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
NUMBER, KIND, FIRST = 0, 4, 16  # of the call, of its processor, and the call's first argument
KINDS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # how the kernel calls a processor
Step = tuple[int, int, int, int]  # what to do, how far to jump if it is so and if not, with what


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def install(steps: tuple[Step, ...]) -> None:
    """For this thread and all that comes of it. Raises OSError."""
    text = b"".join(pack("HBBI", *step) for step in steps)
    told = _Program(len(steps), text)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(told), 0, 0):
        raise OSError(ctypes.get_errno(), "system calls cannot be filtered here")
