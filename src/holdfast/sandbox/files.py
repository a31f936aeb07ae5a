"""The files inside a sandbox, reached through its agent, as the sandbox's user."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from holdfast.model.errors import BadInput, NotFound
from holdfast.protocol.sandbox_messages import FileEntry
from holdfast.sandbox import languages
from holdfast.sandbox.line import AgentLine
from holdfast.sandbox.process import Process
from holdfast.sandbox.start import Start

MOST_BYTES = 64 << 20  # in one answer


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of a file, and what the whole file was like when it was read."""

    data: bytes
    size: int
    modified: float


class _Whole(msgspec.Struct):
    size: int
    modified: float


class Files:
    """What can be done to them. Every verb raises NotFound or BadInput."""

    def __init__(self, line: AgentLine) -> None:
        self._line = line

    async def read(self, path: str) -> bytes:
        return await self._do("read", path)

    async def read_piece(self, path: str, offset: int, size: int | None) -> Piece:
        """So much of a file from there on; a file that is too large for one answer is read so."""
        most = MOST_BYTES - 1024 if size is None else size  # a line about the file comes with it
        told = await self._do("read", path, offset=offset, size=most)
        line, _, data = told.partition(b"\n")
        try:
            whole = msgspec.json.decode(line, type=_Whole)
        except msgspec.MsgspecError as error:
            raise BadInput(f"the file cannot be read: {error}") from None
        return Piece(data, whole.size, whole.modified)

    async def write(self, path: str, data: bytes, offset: int | None = None) -> None:
        """Replace a file, as a whole or not at all. With an offset, which must be the file's size,
        add to it instead; 0 begins anew."""
        await self._do("write", path, data, offset=offset)

    async def list(self, path: str) -> tuple[FileEntry, ...]:
        lines = (await self._do("list", path)).splitlines()
        try:
            return tuple(msgspec.json.decode(line, type=FileEntry) for line in lines)
        except msgspec.MsgspecError as error:
            raise BadInput(f"the folder cannot be listed: {error}") from None

    async def rename(self, path: str, to: str) -> None:
        """Give a file another path, in one step; what was there is replaced."""
        await self._do("rename", path, to=_checked(to))

    async def change(self, verb: str, path: str) -> None:
        """Make a folder, or remove what is there."""
        await self._do(verb, path)

    async def _do(self, verb: str, path: str, data: bytes = b"", **more: object) -> bytes:
        order = Start(
            call={"call": verb, "path": _checked(path), **more},
            cwd=languages.HOME,
            stdin=verb == "write",
        )
        process = await self._line.start(order)
        try:
            if verb == "write":
                await process.write(data)
                process.end_input()
            said, trouble = await _answer(process, path)
        finally:
            if process.exit is None:
                process.abandon()
        if process.exit is None or process.exit.code != 0:
            number, _, why = trouble.decode("utf-8", "replace").partition(" ")
            missing = number in ("2", "20")
            raise (NotFound if missing else BadInput)(why or "the file could not be reached")
        return said


async def _answer(process: Process, path: str) -> tuple[bytes, bytes]:
    """All it says on either stream until it ends. Raises BadInput when that is too much."""
    process.follower = True
    held: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
    seen = 0
    while True:
        ended = process.exit is not None
        for piece in process.replay.after(seen):
            held[piece.stream] += piece.data
            seen = piece.offset
        if len(held["stdout"]) > MOST_BYTES:
            raise BadInput(
                f"{path} has more than {MOST_BYTES} bytes",
                hint="read it in pieces, with `offset` and `size`",
            )
        if ended:
            return bytes(held["stdout"]), bytes(held["stderr"])
        process.consumed()
        await process.changed()


def _checked(path: str) -> str:
    if "\0" in path or not path:
        raise BadInput(f"not a path: {path!r}")
    return path
