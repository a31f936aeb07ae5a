"""Waits for one process to end and writes how: `watcher.py PIDFD FILE`, the first being inherited.

Runs as a program of its own, with nothing but the standard library and without `site`, because one
of them lives as long as each container. The exit code of a process that is nobody's child here
comes from its pidfd (Linux 6.15 and newer); where the kernel does not tell, nothing is written.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys

_INFO = struct.Struct("=QQ11Ii")  # struct pidfd_info: mask, cgroup, ids, exit code
_GET_INFO = 0xC0000000 | _INFO.size << 16 | 0xFF << 8 | 11
_EXIT = 1 << 3


def wait(fd: int) -> int | None:
    """The wait status of a process once it is gone, or None if nobody can tell."""
    poll = select.poll()
    poll.register(fd, 0)  # hang-up only: it is there when the process was reaped
    poll.poll()
    try:
        told = fcntl.ioctl(fd, _GET_INFO, _INFO.pack(_EXIT, *[0] * 13))
    except OSError:  # an older kernel
        return None
    mask, *_, status = _INFO.unpack(told)
    return status if mask & _EXIT else None


def document(status: int) -> str:
    """`exit.json`."""
    if os.WIFSIGNALED(status):
        return f'{{"code": null, "signal": {os.WTERMSIG(status)}}}'
    return f'{{"code": {os.WEXITSTATUS(status)}, "signal": null}}'


def main() -> None:
    place, name = os.path.split(sys.argv[2])
    # Held open, so that what is written later goes there, and not to a container of the same name.
    try:
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:  # it was forgotten already
        return
    status = wait(int(sys.argv[1]))
    if status is None:
        return
    draft = f"{name}.draft"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=folder)
        with open(fd, "w") as file:
            file.write(document(status))
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:  # forgotten meanwhile
        return


if __name__ == "__main__":
    main()
