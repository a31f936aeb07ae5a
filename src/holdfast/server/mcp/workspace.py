"""The one folder whose files the tools may touch without running code."""

from __future__ import annotations

import base64
import binascii
import errno
import os
import secrets
import stat
from pathlib import Path

from holdfast.model.disk import Disk
from holdfast.model.errors import BadInput, Denied, HoldfastError, NotFound, from_os_error
from holdfast.model.secrets import has_key
from holdfast.server.mcp.answers import FileRead, FileWritten
from holdfast.server.mcp.arguments import ReadFile, WriteFile

_NO_FILE = (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO, errno.EEXIST)


class Workspace:
    """Blocking; called in threads."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()
        self.folder = folder.resolve()

    def read(self, subject: str, asked: ReadFile, *, show_secrets: bool) -> FileRead:
        """Raises NotFound, Denied and BadInput."""
        path = self._inside(asked.path)
        try:
            # Not blocking: a pipe without a writer would hold us for ever.
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise BadInput(f"{asked.path} is not a file", hint="name a regular file")
                file.seek(asked.offset)
                data = file.read(asked.limit)
        except OSError as error:
            raise _told(error, asked.path, "reading a file") from error
        return piece(subject, asked, data, status.st_size, show_secrets=show_secrets)

    def write(self, subject: str, asked: WriteFile) -> FileWritten:
        """Replace a file, whole or not at all. Raises Denied, BadInput and StorageFull."""
        path, data = self._inside(asked.path), content_of(asked)
        try:
            if path.is_dir():
                raise BadInput(f"{asked.path} is a folder", hint="name a file")
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
            try:
                with open(beside, "xb") as file:
                    if path.exists():
                        os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
                    file.write(data)
                    file.flush()
                    self._disk.sync_file(file.fileno(), "workspace data")
                os.replace(beside, path)
            except BaseException:
                beside.unlink(missing_ok=True)
                raise
        except OSError as error:
            raise _told(error, asked.path, "writing a file") from error
        return FileWritten(subject=subject, path=asked.path, size=len(data))

    def _inside(self, given: str) -> Path:
        """The path, links followed. Raises Denied for one that leads elsewhere."""
        if "\0" in given:
            raise BadInput("no path has a zero byte", hint="name a file in the workspace")
        try:
            path = (self.folder / given).resolve()
        except (OSError, RuntimeError) as error:  # a circle of links
            raise NotFound(f"no such file: {given}") from error
        if not path.is_relative_to(self.folder):
            raise Denied(
                f"{given} is not in the workspace {self.folder}",
                hint="`execute` can reach it, when the person agrees; or start with --workspace",
            )
        return path


def _told(error: OSError, path: str, doing: str) -> HoldfastError:
    """What is wrong with the path itself is no fault of ours."""
    if error.errno in _NO_FILE:
        return BadInput(f"{path} is not a file: {error.strerror}", hint="name a regular file")
    return from_os_error(error, doing)


def content_of(asked: WriteFile) -> bytes:
    """Raises BadInput."""
    if asked.encoding == "text":
        try:
            return asked.content.encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"the content is no text: {error}", hint="encoding: base64") from None
    try:
        return base64.b64decode(asked.content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadInput(f"the content is not base64: {error}") from None


def piece(subject: str, asked: ReadFile, data: bytes, size: int, *, show_secrets: bool) -> FileRead:
    """What was read, as an answer. Raises BadInput for what is no text, Denied for a key."""
    if has_key(data) and not show_secrets:
        raise Denied(
            f"{asked.path} has what looks like a secret key in it",
            hint="work on it with `execute` without printing the key, or start the server"
            " with --show-secrets",
        )
    complete = asked.offset + len(data) >= size
    if asked.encoding == "base64":
        content = base64.b64encode(data).decode("ascii")
    else:
        try:
            content = data.decode()
        except UnicodeDecodeError as error:
            # A piece may end within a character; that is no fault of the file.
            if complete or error.start < len(data) - 3 or error.start == 0:
                raise BadInput(f"{asked.path} is not UTF-8 text", hint="encoding: base64") from None
            data = data[: error.start]
            content = data.decode()
    return FileRead(
        subject=subject,
        path=asked.path,
        content=content,
        encoding=asked.encoding,
        size=size,
        offset=asked.offset,
        complete=complete,
    )
