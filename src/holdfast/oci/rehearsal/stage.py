"""Where a rehearsal takes place: layers over what the container saw, and an empty network.

Nothing that is written here reaches what lies below: not the image, not a volume.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.model.errors import Unsupported
from holdfast.runtime.command import run

_NEW_NET = 0x40000000  # CLONE_NEWNET
_SECONDS = 20.0
# A server that listened at an address of its own may listen there again, though nobody has it.
_ANY_ADDRESS = ("/proc/sys/net/ipv4/ip_nonlocal_bind", "/proc/sys/net/ipv6/ip_nonlocal_bind")


def lay_over(lower: Sequence[str], folder: Path, point: Path) -> Path:
    """Mount an overlay whose writable layer is in `folder`; gives that layer. Raises
    Unsupported."""
    upper, work = folder / "upper", folder / "work"
    for each in (upper, work, point):
        each.mkdir(parents=True)
    if not all(os.path.isdir(each) for each in lower):
        raise Unsupported("the layers of its image are not where they were")
    below = ":".join(each.replace("\\", "\\\\").replace(":", "\\:") for each in lower)
    options = f"lowerdir={below},upperdir={upper},workdir={work}"
    done = run(("mount", "-t", "overlay", "overlay", "-o", options, point), seconds=_SECONDS)
    if not done.succeeded:
        raise Unsupported(f"its files cannot be laid out here: mount {done.reason()}")
    return upper


def stand_in(source: str, folder: Path) -> str:
    """Something that looks like a folder or a file of the node and is not it. Raises
    Unsupported."""
    if os.path.isdir(source):
        lay_over([source], folder, folder / "seen")
        return str(folder / "seen")
    if os.path.isfile(source):
        folder.mkdir(parents=True)
        shutil.copy2(source, folder / "seen")
        return str(folder / "seen")
    raise Unsupported(f"{source}, which it has bound, is no folder and no file")


class EmptyNetwork:
    """A network namespace with nothing in it, as long as this is open."""

    def __init__(self) -> None:
        made: list[int] = []
        failures: list[OSError] = []

        def make() -> None:
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.unshare(_NEW_NET) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
                for name in _ANY_ADDRESS:
                    with suppress(FileNotFoundError):  # a kernel without IPv6
                        Path(name).write_text("1")
                made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
            except OSError as error:
                failures.append(error)

        thread = threading.Thread(target=make)  # it alone is in the new one, and ends with it
        thread.start()
        thread.join()
        if failures:
            raise Unsupported(f"no network can be made: {failures[0]}")
        self._space = made[0]

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._space}"

    def close(self) -> None:
        os.close(self._space)
