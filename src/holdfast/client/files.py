"""The files of a sandbox, from outside."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

Ask = Callable[[Mapping[str, object]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One name in a folder."""

    name: str
    kind: str
    size: int
    mode: int
    modified: float


class Files:
    """Reads and writes files as the sandbox's user."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def read(self, path: str) -> bytes:
        """A whole file. Raises NotFound or BadInput."""
        told = await self._do("read", path, encoding="base64")
        return base64.b64decode(told.get("data") or "")

    async def read_text(self, path: str) -> str:
        return (await self.read(path)).decode()

    async def write(self, path: str, data: bytes | str) -> None:
        """Replace a file, as a whole or not at all; missing folders are made."""
        content = data.encode() if isinstance(data, str) else data
        encoded = base64.b64encode(content).decode("ascii")
        await self._do("write", path, data=encoded, encoding="base64")

    async def list(self, path: str = "/root") -> list[FileInfo]:
        told = await self._do("list", path)
        return [FileInfo(**each) for each in told.get("entries") or ()]

    async def remove(self, path: str) -> None:
        """Remove a file, or a folder with everything in it."""
        await self._do("remove", path)

    async def make_folder(self, path: str) -> None:
        await self._do("mkdir", path)

    async def _do(self, verb: str, path: str, **more: object) -> dict[str, Any]:
        return await self._ask({"action": "files", "verb": verb, "path": path, **more})
