"""What is done to files inside, as the user whose files they are."""

from __future__ import annotations

import errno
import os
import stat

from holdfast.sandbox.agent.small import TYPE_CHECKING, encode

if TYPE_CHECKING:
    from typing import BinaryIO, NoReturn

    from holdfast.sandbox.agent.small import Order

BLOCK = 1 << 20


def file_verb(order: Order) -> NoReturn:
    """Do one thing to a file, with the standard streams as its data."""
    verb, path, offset = order["call"], order["path"], order.get("offset")
    try:
        if verb == "read":
            with open(path, "rb", opener=regular) as file:
                if offset is None:
                    while block := file.read(BLOCK):
                        write_all(block)
                else:
                    read_piece(file, offset, order["size"])
        elif verb == "write":
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            if offset is None:
                replace(path)
            else:
                add(path, offset)
        elif verb == "rename":
            os.makedirs(os.path.dirname(order["to"]) or ".", exist_ok=True)
            os.rename(path, order["to"])
        elif verb == "list":
            for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
                write_all(encode(described(entry)) + b"\n")
        elif verb == "mkdir":
            os.makedirs(path, exist_ok=True)
        elif verb == "remove":
            remove(path)
    except OSError as error:
        told = f"{error.errno} {error.strerror}: {path}"
        os.write(2, told.encode("utf-8", "backslashreplace"))
        os._exit(1)
    os._exit(0)


def read_piece(file: BinaryIO, offset: int, size: int) -> None:
    """A line about the whole file, then what was asked for."""
    status = os.fstat(file.fileno())
    whole = {"size": status.st_size, "modified": status.st_mtime}
    write_all(encode(whole) + b"\n")
    file.seek(offset)
    while size > 0 and (block := file.read(min(size, BLOCK))):
        write_all(block)
        size -= len(block)


def replace(path: str) -> None:
    """With the mode that the file had; a new one has what everybody's have."""
    part = f"{path}.holdfast-part-{os.getpid()}"
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mode = None
    try:
        with open(part, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            while block := os.read(0, BLOCK):
                file.write(block)
        os.rename(part, path)
    except OSError:
        if os.path.lexists(part):
            os.unlink(part)
        raise


def add(path: str, offset: int) -> None:
    """Go on writing a file. A piece that comes twice, or too early, is noticed by the size."""
    begin = os.O_CREAT | os.O_TRUNC if offset == 0 else 0
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | begin, 0o644)
    with open(fd, "wb") as file:
        size = os.fstat(fd).st_size
        if size != offset:
            raise OSError(errno.EINVAL, f"the file has {size} bytes, not {offset}")
        file.seek(offset)
        while block := os.read(0, BLOCK):
            file.write(block)


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
    raw = os.fsencode(entry.name)
    name = raw.decode("utf-8", "replace")
    return {
        "name": name,
        "kind": kinds.get(stat.S_IFMT(status.st_mode), "other"),
        "size": status.st_size,
        "mode": stat.S_IMODE(status.st_mode),
        "modified": status.st_mtime,
        **({} if name.encode() == raw else {"raw": base64_of(raw)}),
    }


def base64_of(data: bytes) -> str:
    from binascii import b2a_base64  # of no use to anybody else here

    return b2a_base64(data, newline=False).decode()


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
