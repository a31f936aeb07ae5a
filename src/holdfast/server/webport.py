"""A WebSocket carried to a program inside a sandbox: ours on this side, its own on that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from starlette.websockets import WebSocket
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import OPEN
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from holdfast.sandbox.switchboard import Channel

OPEN_SECONDS = 30.0
MOST = 16 << 20  # bytes of one message
_NO_CODE = (1005, 1006)  # said when nothing was said; may not be sent


async def carry(
    socket: WebSocket,
    channel: Channel,
    target: str,
    headers: Sequence[tuple[bytes, bytes]],
    wanted: Sequence[str],
    touch: Callable[[], None],
) -> None:
    """Open the other side, then accept, then pass messages on until one side goes."""
    protocols = [Subprotocol(each) for each in wanted] or None
    far = ClientProtocol(
        parse_uri(f"ws://localhost{target}"), subprotocols=protocols, max_size=MOST
    )
    asked = far.connect()
    for name, value in headers:
        asked.headers[name.decode("latin-1")] = value.decode("latin-1")
    far.send_request(asked)
    await _flush(far, channel)
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await _opened(far, channel)
    except (TimeoutError, ConnectionError):
        await socket.close(1008)
        return
    await socket.accept(subprotocol=far.subprotocol)
    tasks = {
        asyncio.create_task(_inward(socket, far, channel, touch)),
        asyncio.create_task(_outward(socket, far, channel, touch)),
    }
    _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _flush(far: ClientProtocol, channel: Channel) -> None:
    for data in far.data_to_send():
        if data:
            await channel.write(data)
        else:
            await channel.end()


async def _opened(far: ClientProtocol, channel: Channel) -> None:
    """Raises ConnectionError when it is no WebSocket."""
    while far.state is not OPEN:
        data = await channel.read()
        if not data or far.handshake_exc is not None:
            raise ConnectionRefusedError("it is no WebSocket")
        far.receive_data(data)
        for event in far.events_received():
            if isinstance(event, Response) and event.status_code != 101:
                raise ConnectionRefusedError("it is no WebSocket")


async def _inward(
    socket: WebSocket, far: ClientProtocol, channel: Channel, touch: Callable[[], None]
) -> None:
    while True:
        message = await socket.receive()
        touch()
        if message["type"] == "websocket.disconnect":
            code = message.get("code") or 1000
            far.send_close(1000 if code in _NO_CODE else code)
            await _flush(far, channel)
            return
        text = message.get("text")
        if isinstance(text, str):
            far.send_text(text.encode())
        else:
            far.send_binary(message.get("bytes") or b"")
        await _flush(far, channel)


async def _outward(
    socket: WebSocket, far: ClientProtocol, channel: Channel, touch: Callable[[], None]
) -> None:
    held, is_text = bytearray(), False
    while True:
        for event in far.events_received():
            if not isinstance(event, Frame):
                continue
            if event.opcode in (Opcode.TEXT, Opcode.BINARY):
                held, is_text = bytearray(event.data), event.opcode is Opcode.TEXT
            elif event.opcode is Opcode.CONT:
                held += event.data
            else:
                continue
            if event.fin:
                touch()
                if is_text:
                    await socket.send_text(held.decode("utf-8", "replace"))
                else:
                    await socket.send_bytes(bytes(held))
        await _flush(far, channel)
        if far.close_expected() or far.state is not OPEN:
            code = far.close_code or 1000
            await socket.close(1000 if code in _NO_CODE else code, far.close_reason or "")
            return
        data = await channel.read()
        if data:
            far.receive_data(data)
        else:
            far.receive_eof()
