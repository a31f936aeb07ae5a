"""The agent's beginning: it says that it is there before it loads what programs need.

That is half of what an agent loads, and whoever waits for a new sandbox need not wait for it:
orders that come meanwhile are in the pipe. Nothing runs inside until they are read. For the same
reason the interpreter is given this text, and not a module to look for: in gVisor a file that is
looked for costs more than what is in it. (`__future__` would be one.)
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

READY = b'{"type": "ready", "version": 1}\n'
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
GENERATION = "/run/holdfast/generation"


def furnish() -> None:
    """What programs find in a new sandbox, where its engine leaves it to us."""
    if shared := os.environ.get("SHARED_MEMORY"):
        os.makedirs(shared, exist_ok=True)
        os.chmod(shared, 0o1777)  # where programs share memory by name
        if os.path.exists(GENERATION):
            os.unlink(GENERATION)  # of the sandbox whose files these were


def bring_up(device: str) -> None:
    """Let a network device work; raises OSError. Only here: what it needs takes time to load."""
    from _socket import AF_INET, SOCK_DGRAM, socket
    from fcntl import ioctl
    from struct import pack

    handle = socket(AF_INET, SOCK_DGRAM)
    try:
        ioctl(handle.fileno(), SIOCSIFFLAGS, pack("16sH22x", device.encode(), IFF_UP))
    finally:
        handle.close()


def main(folder: str) -> "NoReturn":
    """`folder` is where the rest of the agent lies."""
    if loopback := os.environ.get("LOOPBACK"):
        bring_up(loopback)  # or there is no sandbox
    # The channel moves off the descriptors that programs think of as theirs.
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    os.write(sink, len(READY).to_bytes(4, "big") + READY)
    furnish()
    sys.path.insert(0, folder)
    from holdfast.sandbox.agent.loop import look_after

    look_after(source, sink)


if __name__ == "__main__":
    main(sys.argv[1])
