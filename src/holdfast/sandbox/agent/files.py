"""What is done to files inside, as the user whose files they are."""

from __future__ import annotations

import errno
import json
import os
import stat
from typing import NoReturn


def file_verb(verb: str, path: str) -> NoReturn:
    """Do one thing to a file, with the standard streams as its data."""
    try:
        if verb == "read":
            with open(path, "rb", opener=regular) as file:
                while block := file.read(1 << 20):
                    write_all(block)
        elif verb == "write":
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            part = f"{path}.holdfast-part-{os.getpid()}"
            with open(part, "wb") as file:
                while block := os.read(0, 1 << 20):
                    file.write(block)
            os.rename(part, path)
        elif verb == "list":
            for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
                write_all(json.dumps(described(entry)).encode() + b"\n")
        elif verb == "mkdir":
            os.makedirs(path, exist_ok=True)
        elif verb == "remove":
            remove(path)
    except OSError as error:
        os.write(2, f"{error.errno} {error.strerror}: {path}".encode())
        os._exit(1)
    os._exit(0)


def regular(path: str, flags: int) -> int:
    """Open without waiting for a writer: reading a pipe or a device would never end."""
    fd = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def described(entry: os.DirEntry[str]) -> dict[str, object]:
    status = entry.stat(follow_symlinks=False)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    return {
        "name": entry.name.encode("utf-8", "replace").decode(),
        "kind": kinds.get(stat.S_IFMT(status.st_mode), "other"),
        "size": status.st_size,
        "mode": stat.S_IMODE(status.st_mode),
        "modified": status.st_mtime,
    }


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        for entry in os.scandir(path):
            remove(entry.path)
        os.rmdir(path)
    else:
        os.unlink(path)


def write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
