"""A sandbox that a program elsewhere binds: held still for as long as the program is connected.

The connection is the hold: whoever goes away, or is killed, lets the sandbox go on as it was
(spec/bundle-v1.md, "From a distance").
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from holdfast.model.errors import BadInput, HoldfastError, NotFound
from holdfast.sandbox.member import SandboxMember
from holdfast.server.doors import Access, websocket
from holdfast.server.sandboxes import accept

if TYPE_CHECKING:
    from holdfast.sandbox.fleet import Fleet

LONGEST_SILENCE = 300.0  # seconds; a program that hangs does not hold it for ever


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """One step of a bundle."""

    verb: Literal["capture", "enter", "check", "run", "arrive", "resume"]
    reason: str = ""
    stage: str | None = None
    checkpoint: str = ""
    code: str = ""


_decode = msgspec.json.Decoder(Order).decode


class Holding:
    """The way to hold a sandbox of a fleet."""

    def __init__(self, fleet: Fleet | None) -> None:
        self._fleet = fleet

    def route(self) -> WebSocketRoute:
        return websocket(
            "/v1/sandboxes/{id}/hold",
            self.hold,
            access=Access.OWNER,
            subject="sandboxes that run on this server",
        )

    async def hold(self, socket: WebSocket) -> None:
        await accept(socket)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # it is told to nobody
            try:
                member = self._member(socket.path_params["id"])
                await member.pause()
            except HoldfastError as error:
                await _refuse(socket, error)
                await socket.close()
                return
            try:
                token = member.lease.token if member.lease is not None else None
                await socket.send_json({"subject": str(member.subject), "token": token})
                await self._serve(socket, member)
            finally:
                await asyncio.shield(member.resume())
            await socket.send_json({"resumed": True})
            await socket.close()

    def _member(self, identity: str) -> SandboxMember:
        sandbox = self._fleet.live.get(identity) if self._fleet is not None else None
        if self._fleet is None or sandbox is None:
            raise NotFound(f"no sandbox {identity[:50]!r} runs here")
        return SandboxMember(self._fleet, sandbox)

    async def _serve(self, socket: WebSocket, member: SandboxMember) -> None:
        """Until it is to go on, or nobody is there any more."""
        while True:
            try:
                async with asyncio.timeout(LONGEST_SILENCE):
                    text = await socket.receive_text()
            except TimeoutError:
                return
            try:
                order = _order(text)
                if order.verb == "resume":
                    return
                await socket.send_json(await self._do(member, order))
            except HoldfastError as error:
                await _refuse(socket, error)

    async def _do(self, member: SandboxMember, order: Order) -> dict[str, object]:
        if order.verb == "capture":
            return {"checkpoint": (await member.capture(order.reason, order.stage)).id}
        if order.verb == "check":
            return {}
        if order.verb == "run":
            await member.run(order.code)
            return {}
        found = await asyncio.to_thread(member.store.resolve, order.checkpoint)
        if found.subject != member.subject:
            raise BadInput(f"{found.short} is a checkpoint of {found.subject}")
        await (member.arrive(found) if order.verb == "arrive" else member.enter(found, False))
        return {"checkpoint": found.id}


def _order(text: str) -> Order:
    try:
        return _decode(text)
    except msgspec.MsgspecError as error:
        raise BadInput(f"not a step of a bundle: {error}") from None


async def _refuse(socket: WebSocket, error: HoldfastError) -> None:
    told = {"kind": error.kind, "message": str(error), "hint": error.hint}
    await socket.send_json({"error": told})
