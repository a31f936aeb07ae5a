"""The files of a sandbox, from outside."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.model.errors import BadInput, Conflict, HoldfastError

PIECE = 4 << 20  # bytes in one frame, which may be twice as long
Ask = Callable[[Mapping[str, object]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One name in a folder."""

    name: str
    kind: str
    size: int
    mode: int
    modified: float


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Some of a file, and how many bytes the whole file has."""

    data: bytes
    size: int


class Files:
    """Reads and writes files as the sandbox's user."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def read(self, path: str) -> bytes:
        """A whole file. Raises NotFound or BadInput, and Conflict when it changes meanwhile."""
        told = await self._piece(path, 0)
        data = bytearray(base64.b64decode(told.get("data") or ""))
        whole = told.get("size") or len(data)  # a server without pieces sends all at once
        while len(data) < whole:
            next_ = await self._piece(path, len(data))
            piece = base64.b64decode(next_.get("data") or "")
            if not piece or any(next_.get(each) != told.get(each) for each in ("size", "modified")):
                raise Conflict(f"{path} changed while it was read", hint="read it again")
            data += piece
        return bytes(data)

    async def read_piece(self, path: str, offset: int, size: int) -> FilePiece:
        """So many bytes of a file from there on, or fewer at its end. Raises as `read`."""
        told = await self._do("read", path, encoding="base64", offset=offset, size=size)
        data = base64.b64decode(told.get("data") or "")
        if told.get("size") is None:  # a server without pieces sends all at once
            return FilePiece(data[offset : offset + size], len(data))
        return FilePiece(data, int(told["size"]))

    async def read_text(self, path: str) -> str:
        try:
            return (await self.read(path)).decode()
        except UnicodeDecodeError:
            raise BadInput(f"{path} is not UTF-8 text", hint="`read` gives its bytes") from None

    async def write(self, path: str, data: bytes | str) -> None:
        """Replace a file, as a whole or not at all; missing folders are made."""
        content = memoryview(data.encode() if isinstance(data, str) else data)
        if len(content) <= PIECE:
            await self._put(path, content)
            return
        part = f"{path}.holdfast-part-{secrets.token_hex(8)}"
        try:
            for offset in range(0, len(content), PIECE):
                await self._put(part, content[offset : offset + PIECE], offset=offset)
            await self.rename(part, path)
        except HoldfastError as error:
            try:
                await self.remove(part)
            except HoldfastError:
                error.add_note(f"{part} may be left over")
            raise

    async def list(self, path: str = "/root") -> list[FileInfo]:
        """What is in a folder. A name that is not UTF-8 is as `os.fsdecode` gives it, and leads to
        its file like any other."""
        told = await self._do("list", path)
        return [_info(**each) for each in told.get("entries") or ()]

    async def remove(self, path: str) -> None:
        """Remove a file, or a folder with everything in it."""
        await self._do("remove", path)

    async def make_folder(self, path: str) -> None:
        await self._do("mkdir", path)

    async def _piece(self, path: str, offset: int) -> dict[str, Any]:
        return await self._do("read", path, encoding="base64", offset=offset, size=PIECE)

    async def _put(self, path: str, data: memoryview, offset: int | None = None) -> None:
        encoded = base64.b64encode(data).decode("ascii")
        at: dict[str, Any] = {} if offset is None else {"offset": offset}
        await self._do("write", path, data=encoded, encoding="base64", **at)

    async def rename(self, path: str, to: str) -> None:
        """Give a file or folder another path, in one step; a file that was there is replaced."""
        await self._do("rename", path, to=to)

    async def _do(
        self, verb: str, path: str, *, to: str | None = None, **more: object
    ) -> dict[str, Any]:
        names: dict[str, object] = {"path": path, **({"to": to} if to is not None else {})}
        try:
            f"{path}{to or ''}".encode()
        except UnicodeEncodeError:  # bytes that are no text
            names = {each: _base64(str(name)) for each, name in names.items()}
            names["path_encoding"] = "base64"
        return await self._ask({"action": "files", "verb": verb, **names, **more})


def _base64(path: str) -> str:
    try:
        return base64.b64encode(os.fsencode(path)).decode("ascii")
    except UnicodeEncodeError:
        raise BadInput(f"not a path: {path!r:.100}", hint="it holds half a character") from None


def _info(*, raw: str | None = None, name: str, **rest: Any) -> FileInfo:
    return FileInfo(name if raw is None else os.fsdecode(base64.b64decode(raw)), **rest)
