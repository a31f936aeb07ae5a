"""Waits for one process to end and writes how: `watcher.py PIDFD FOLDER FILE`, the first two being
descriptors that are inherited, so that what is written goes to the container it was begun for, and
not to a new one of the same name.

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
    folder, name = int(sys.argv[2]), sys.argv[3]
    status = wait(int(sys.argv[1]))
    if status is None:
        return
    draft = f"{name}.draft"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=folder)
        with open(fd, "w") as file:
            file.write(document(status))
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:  # the container was forgotten meanwhile
        return


if __name__ == "__main__":
    main()
