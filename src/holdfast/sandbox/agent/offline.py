"""No network at all: a filter by which a program, and all it starts, gets no socket of a network.

A sandbox that has nothing but a loopback keeps programs from the world; this keeps them from each
other's ports, too.
"""

from __future__ import annotations

import errno
import os

from holdfast.sandbox.agent.calls import (
    ALLOW,
    AT_LEAST,
    EQUAL,
    FAIL,
    FIRST,
    KIND,
    KINDS,
    LOAD,
    NUMBER,
    RETURN,
    install,
)

_OTHER_CALLS = 0x40000000  # from here on, calls of another kind on the same processor
_IO_URING = 425  # makes sockets without a call for each
_INET, _INET6 = 2, 10
_SOCKET = {"x86_64": 41, "aarch64": 198}


def go_offline() -> None:
    """For this process and all that come of it. Raises OSError, also on a machine whose calls are
    not known."""
    machine = os.uname().machine
    if machine not in _SOCKET:
        raise OSError(errno.ENOSYS, f"no sandbox is offline on {machine}")
    install(
        (
            (LOAD, 0, 0, KIND),
            (EQUAL, 0, 9, KINDS[machine]),
            (LOAD, 0, 0, NUMBER),
            (AT_LEAST, 7, 0, _OTHER_CALLS),
            (EQUAL, 6, 0, _IO_URING),
            (EQUAL, 0, 3, _SOCKET[machine]),
            (LOAD, 0, 0, FIRST),
            (EQUAL, 2, 0, _INET),
            (EQUAL, 1, 0, _INET6),
            (RETURN, 0, 0, ALLOW),
            (RETURN, 0, 0, FAIL | errno.EAFNOSUPPORT),
            (RETURN, 0, 0, FAIL | errno.ENOSYS),
        )
    )
