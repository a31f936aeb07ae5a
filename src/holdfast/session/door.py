"""The door of a session: where other programs of the same user ask its owner for a checkpoint.

It is an abstract socket of this machine, so nothing of it is left behind, however its owner ends.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.model.errors import HoldfastError, Unsupported, all_kinds
from holdfast.protocol.frames import FrameDecoder
from holdfast.protocol.session_messages import (
    CheckpointCreatedMessage,
    CheckpointMessage,
    ErrorMessage,
    decode_worker,
    frame,
)
from holdfast.session.dialogue import serve
from holdfast.session.session import Session
from holdfast.store import Store

_SCHEME = "unix:@"
_SECONDS = 600.0  # a cell may be running, and is waited for
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class Door:
    """Leases of this store say where it is; so it is made before its session is started."""

    def __init__(self, store: Store) -> None:
        self.address = f"{_SCHEME}holdfast-{secrets.token_hex(8)}"
        store.announce(self.address)

    @asynccontextmanager
    async def open(self, session: Session) -> AsyncIterator[None]:
        """Whoever knocks meanwhile is answered, if it is a program of our user, or of root."""
        visits: set[asyncio.Task[object]] = set()

        async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            visit = asyncio.current_task()
            assert visit is not None
            visits.add(visit)
            try:
                if _user_of(writer.get_extra_info("socket")) in (0, os.geteuid()):
                    await serve(session, reader, writer, only=CheckpointMessage)
            except asyncio.CancelledError:
                return  # by us, below; `asyncio` before 3.12 would report it as a failure
            finally:
                writer.close()
                visits.discard(visit)

        server = await asyncio.start_unix_server(visited, _path(self.address))
        try:
            yield
        finally:
            server.close()
            for visit in visits:
                visit.cancel()


def is_door(address: str) -> bool:
    """Whether an owner's address is a door."""
    return address.startswith(_SCHEME)


def ask(address: str, reason: str) -> str:
    """The id of the checkpoint that the session's owner made. Waits for a running cell.

    Raises Unsupported when there is no such door on this machine, and what the owner refused.
    """
    decoder = FrameDecoder()
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_SECONDS)
        try:
            line.connect(_path(address))
        except OSError as error:
            raise Unsupported(
                f"its owner does not answer at {address}: {error.strerror}",
                hint="on another machine, or in a container, it is reached only from there",
            ) from None
        try:
            line.sendall(frame(CheckpointMessage(request_id=1, reason=reason)))
            while data := line.recv(1 << 16):
                for payload in decoder.feed(data):
                    match decode_worker(payload):
                        case CheckpointCreatedMessage() as made:
                            return made.checkpoint_id
                        case ErrorMessage() as told:
                            kind = all_kinds().get(told.error_type, HoldfastError)
                            raise kind(told.message, hint=told.hint or None)
        except OSError as error:
            raise HoldfastError(f"its owner does not answer: {error}") from None
    raise HoldfastError("its owner ended before it answered")


def _path(address: str) -> str:
    return "\0" + address.removeprefix(_SCHEME)


def _user_of(visitor: socket.socket) -> int:
    told = visitor.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(told)[1]
    return uid
