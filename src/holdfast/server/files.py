"""What clients ask of the files of a sandbox, and the answer."""

from __future__ import annotations

import base64
import binascii
import os

from holdfast.model.errors import BadInput
from holdfast.protocol.sandbox_messages import FileEntry, FilesEvent, FilesRequest
from holdfast.sandbox.files import Files, Piece


async def do_to_files(files: Files, request: FilesRequest) -> FilesEvent:
    """Do one thing to the files of a sandbox. Raises HoldfastError."""
    path, offset = path_of(request.path, request), request.offset
    content: bytes | None = None
    piece: Piece | None = None
    entries: tuple[FileEntry, ...] | None = None
    match request.verb:
        case "read" if offset is None and request.size is None:
            content = await files.read(path)
        case "read":
            piece = await files.read_piece(path, offset or 0, request.size)
            content = piece.data
        case "write":
            await files.write(path, data_of(request.data or "", request.encoding), offset)
        case "list":
            entries = await files.list(path)
        case "rename":
            if request.to is None:
                raise BadInput("rename needs the new path", hint="give it as `to`")
            await files.rename(path, path_of(request.to, request))
        case verb:
            await files.change(verb, path)
    return FilesEvent(
        event="files",
        verb=request.verb,
        path=request.path,
        data=None if content is None else text_of(content, request.encoding),
        encoding=request.encoding,
        entries=entries,
        size=None if piece is None else piece.size,
        modified=None if piece is None else piece.modified,
        request_id=request.request_id,
    )


def path_of(text: str, request: FilesRequest) -> str:
    """The path that a client means, as Python has paths that are not UTF-8. Raises BadInput."""
    if request.path_encoding == "text":
        return text
    return os.fsdecode(data_of(text, "base64"))


def data_of(text: str, encoding: str) -> bytes:
    """The bytes that a client means. Raises BadInput."""
    if encoding == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise BadInput("the data is not base64") from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadInput("the data holds half a character") from None


def text_of(content: bytes, encoding: str) -> str:
    if encoding == "base64":
        return base64.b64encode(content).decode("ascii")
    return content.decode("utf-8", "replace")
