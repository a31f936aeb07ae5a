"""No keyrings: the kernel keeps keys by user, and all sandboxes of a host have the same one.

Where a sandbox has no kernel of its own, a program could otherwise read what another sandbox has
put into the keyring of that user.
"""

from __future__ import annotations

import errno
import os

from holdfast.sandbox.agent.calls import (
    ALLOW,
    EQUAL,
    FAIL,
    KIND,
    LOAD,
    NUMBER,
    RETURN,
    Step,
    install,
)

_X32 = 0x40000000  # added to a call's number by programs of that kind
# add_key, request_key and keyctl, for each kind of program that a processor runs.
_CALLS = {
    "x86_64": (
        (0xC000003E, (248, 249, 250, 248 + _X32, 249 + _X32, 250 + _X32)),
        (0x40000003, (286, 287, 288)),
    ),
    "aarch64": ((0xC00000B7, (217, 218, 219)), (0x40000028, (309, 310, 311))),
}


def forgo_keyrings() -> None:
    """For this process and all that come of it, which can get no more power. Raises OSError."""
    if os.uname().machine not in _CALLS:
        return  # no engine of ours runs there
    steps: list[Step] = [(LOAD, 0, 0, KIND)]
    for kind, numbers in _CALLS[os.uname().machine]:
        block: list[Step] = [(LOAD, 0, 0, NUMBER)]
        block += [(EQUAL, len(numbers) - at, 0, each) for at, each in enumerate(numbers)]
        block += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, FAIL | errno.ENOSYS)]
        steps += [(EQUAL, 0, len(block), kind), *block]
    steps += [(RETURN, 0, 0, FAIL | errno.ENOSYS)]
    install(tuple(steps))
