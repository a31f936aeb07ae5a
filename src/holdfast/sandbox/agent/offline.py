"""No network at all: a filter by which a program, and all it starts, gets no socket of a network.

The kernel asks it before each system call, and nothing takes it away again. A sandbox that has
nothing but a loopback keeps programs from the world; this keeps them from each other's ports, too.
Written out as the kernel reads it, because a root has no library for it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from struct import pack

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_NUMBER, _KIND, _FIRST = 0, 4, 16  # of the call, of its processor, and the call's first argument
_OTHER_CALLS = 0x40000000  # from here on, calls of another kind on the same processor
_IO_URING = 425  # makes sockets without a call for each
_INET, _INET6 = 2, 10
# By machine: how the kernel calls its processor, and the call `socket`.
_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}


def program(machine: str) -> bytes:
    """The filter. Raises OSError on a machine whose calls are not known."""
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no sandbox is offline on {machine}")
    kind, call = _MACHINES[machine]
    steps = (
        (_LOAD, 0, 0, _KIND),
        (_EQUAL, 0, 9, kind),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 7, 0, _OTHER_CALLS),
        (_EQUAL, 6, 0, _IO_URING),
        (_EQUAL, 0, 3, call),
        (_LOAD, 0, 0, _FIRST),
        (_EQUAL, 2, 0, _INET),
        (_EQUAL, 1, 0, _INET6),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _FAIL | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _FAIL | errno.ENOSYS),
    )
    return b"".join(pack("HBBI", *step) for step in steps)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def go_offline() -> None:
    """For this process and all that come of it. Raises OSError."""
    steps = program(os.uname().machine)
    told = _Program(len(steps) // 8, steps)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(told), 0, 0):
        raise OSError(ctypes.get_errno(), "programs cannot be kept from the network here")
