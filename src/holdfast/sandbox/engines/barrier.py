"""A wait that no sandbox needs, and how `runsc` is kept from it.

Each of its processes registers for barriers of memory among its own threads when it begins, until
the kernel has seen all processors: 10 ms, three times over before a new sandbox runs. With our
platform such a barrier is never asked for: those of programs go to all processors anyway, which
takes no registration. (Later releases register only where it is of use.)
"""

from __future__ import annotations

import errno
import logging
import os

from holdfast.sandbox.agent.calls import (
    ALLOW,
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

log = logging.getLogger("holdfast.engine")
_MEMBARRIER = {"x86_64": 324, "aarch64": 283}
_REGISTER_PRIVATE_EXPEDITED = 1 << 4


def forgo() -> None:
    """For this thread and all that it starts. Where that is not allowed, they wait."""
    machine = os.uname().machine
    if machine not in _MEMBARRIER:
        return
    try:
        install(
            (
                (LOAD, 0, 0, KIND),
                (EQUAL, 0, 5, KINDS[machine]),
                (LOAD, 0, 0, NUMBER),
                (EQUAL, 0, 3, _MEMBARRIER[machine]),
                (LOAD, 0, 0, FIRST),
                (EQUAL, 0, 1, _REGISTER_PRIVATE_EXPEDITED),
                (RETURN, 0, 0, FAIL | errno.EINVAL),
                (RETURN, 0, 0, ALLOW),
            )
        )
    except OSError as error:
        log.info("runsc begins more slowly than it could: %s", error)
