"""Archives over HTTP: `export` as a download, `import` as an upload. None is ever held whole: the
store reads and writes in a thread, and waits there for the network."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, cast

from anyio import (
    BrokenResourceError,
    CapacityLimiter,
    create_memory_object_stream,
    create_task_group,
    from_thread,
    to_thread,
)
from anyio.streams.memory import MemoryObjectSendStream
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from holdfast.model.errors import BadInput, Corrupt, UsageError
from holdfast.server import shapes
from holdfast.server.doors import Access, route

if TYPE_CHECKING:
    from holdfast.store import Store

MEDIA_TYPE = "application/octet-stream"
_AT_ONCE = 4  # transfers; they wait for their clients, and must not keep other answers waiting
_BLOCK = 256 * 1024  # bytes gathered before they are sent


class Archives:
    """The two routes, on a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._limiter: CapacityLimiter | None = None

    def routes(self) -> list[Route]:
        return [
            route(
                "/v1/checkpoints/{id}/export",
                self.export,
                access=Access.OWNER,
                subject="every subject of the store",
            ),
            route(
                "/v1/import",
                self.import_,
                access=Access.OWNER,
                subject="subjects that the archive names",
                methods=["POST"],
            ),
        ]

    async def export(self, request: Request) -> Response:
        """A checkpoint as an archive."""
        ancestors = _flag(request, "ancestors")
        return _Download(self._store, request.path_params["id"], ancestors, self._limit())

    async def import_(self, request: Request) -> Response:
        """Take an archive in: all of it is read and verified first."""
        trust, dry_run = _flag(request, "trust"), _flag(request, "dry_run")
        body = cast(BinaryIO, _Upload(request))

        def take() -> dict[str, object]:
            self._store.refresh()
            return shapes.imported(self._store.import_archive(body, trust=trust, dry_run=dry_run))

        try:
            return JSONResponse(await to_thread.run_sync(take, limiter=self._limit()))
        except ClientDisconnect:
            raise BadInput("the archive was not sent to its end; nothing was taken in") from None
        except Corrupt as error:  # what was sent, not what is here
            raise BadInput(
                f"the archive cannot be taken in: {error}",
                hint="it is damaged or not whole; nothing was taken in: export it again",
            ) from None

    def _limit(self) -> CapacityLimiter:
        # Made on the first call, because a limiter belongs to the loop that it was made in.
        self._limiter = self._limiter or CapacityLimiter(_AT_ONCE)
        return self._limiter


class _Download(Response):
    """An archive that is made while it is sent. What goes wrong before its first byte is an error
    like any other; later the connection is cut, and what was sent does not pass for an archive."""

    def __init__(
        self, store: Store, reference: str, ancestors: bool, limiter: CapacityLimiter
    ) -> None:
        super().__init__(media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._store = store
        self._reference = reference
        self._ancestors = ancestors
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = await to_thread.run_sync(self._find, limiter=self._limiter)
        self.headers["content-disposition"] = f'attachment; filename="{found}.holdfast"'
        blocks, ours = create_memory_object_stream[bytes]()
        failed: list[Exception] = []

        def write() -> None:
            with _Outlet(blocks) as outlet:
                target = cast(BinaryIO, outlet)
                self._store.export(self._reference, target, ancestors=self._ancestors)

        async def make() -> None:
            with blocks:
                try:
                    await to_thread.run_sync(write, limiter=self._limiter)
                except BrokenPipeError:
                    return  # the client has left: nobody is there to be told
                except Exception as error:  # noqa: BLE001  told below, outside of the task group
                    failed.append(error)

        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()  # nobody wants the rest

        begun = False
        async with create_task_group() as group, ours:
            group.start_soon(make)
            group.start_soon(listen)
            async for block in ours:
                if not begun:
                    await send(
                        {
                            "type": "http.response.start",
                            "status": self.status_code,
                            "headers": self.raw_headers,
                        }
                    )
                    begun = True
                await send({"type": "http.response.body", "body": block, "more_body": True})
            group.cancel_scope.cancel()  # there is nothing left to listen for
        if failed:
            raise failed[0]
        await send({"type": "http.response.body", "body": b""})

    def _find(self) -> str:
        self._store.refresh()
        return self._store.resolve(self._reference).short


class _Outlet(io.RawIOBase):
    """Where the store's thread writes to: blocks go to the loop, which takes one at a time."""

    def __init__(self, blocks: MemoryObjectSendStream[bytes]) -> None:
        super().__init__()
        self._blocks = blocks
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = memoryview(data)  # type: ignore[arg-type]
        self._held += piece
        if len(self._held) >= _BLOCK:
            self.flush()
        return piece.nbytes

    def flush(self) -> None:
        if self._held:
            block, self._held = bytes(self._held), bytearray()
            try:
                from_thread.run(self._blocks.send, block)
            except BrokenResourceError:
                raise BrokenPipeError("the client has left") from None

    def close(self) -> None:
        # Left early, what is held must not go out as if it were wanted.
        self._held.clear()
        super().close()


class _Upload(io.RawIOBase):
    """Where the store's thread reads from: the body of a request, block by block."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self._blocks = request.stream().__aiter__()
        self._left = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Some bytes, at most `size`; none at the end."""
        while not self._left:
            block = from_thread.run(self._next)
            if block is None:
                return b""
            self._left = block
        found, self._left = self._left[:size], self._left[size:]
        return found

    async def _next(self) -> bytes | None:
        return await anext(self._blocks, None)


def _flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise UsageError(f"bad {name}: {text[:40]!r}", hint="true or false")
    return text == "true"
