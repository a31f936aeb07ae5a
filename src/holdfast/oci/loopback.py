"""The loopback device of a restored container.

runc brings it up when it makes a network namespace, and leaves networks out of its dumps; so a
restored namespace has one that is down, and a server that listened on 127.0.0.1 would be deaf.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Mapping

from holdfast.oci.config_handler import Config
from holdfast.oci.network import inside

_GET_FLAGS, _SET_FLAGS = 0x8913, 0x8914  # SIOCGIFFLAGS, SIOCSIFFLAGS
_UP = 1
_REQUEST = struct.Struct("16sH22x")  # struct ifreq: name, flags


def has_own_network(config: Config) -> bool:
    """Whether runc makes the container's network namespace, instead of joining one."""
    spaces = (config.get("linux") or {}).get("namespaces") or ()
    return any(
        isinstance(each, Mapping) and each.get("type") == "network" and not each.get("path")
        for each in spaces
    )


def bring_up(pid: int) -> None:
    """Bring the loopback device of a process's network up; raises OSError."""
    inside(pid, _bring_up)


def _bring_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        answer = fcntl.ioctl(handle, _GET_FLAGS, _REQUEST.pack(b"lo", 0))
        flags = _REQUEST.unpack(answer)[1]
        fcntl.ioctl(handle, _SET_FLAGS, _REQUEST.pack(b"lo", flags | _UP))
