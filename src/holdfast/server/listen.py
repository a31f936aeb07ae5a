"""Listening: one socket, bound before anything else starts, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Generator
from functools import partial
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from holdfast.model.errors import BadInput, Conflict, from_os_error
from holdfast.server.answers import Ending

MAX_PORT = 65535
GRACE_SECONDS = 5
IDLE_SECONDS = 5  # between two requests on one connection
REQUEST_SECONDS = 20.0  # for a head to arrive whole, and between two looks at a body that comes
BODY_BYTES_A_SECOND = 512  # a body that comes more slowly is cut off
MOST_FILES = 1 << 16  # that we ask for; programs that we start inherit it, and some count up to it
TELL_SECONDS = 60.0  # between two warnings of the same
HEAD_BYTES = 16 * 1024
WEBSOCKET_BYTES = 9 << 20  # of one frame; what is a little too long gets an answer in words
PING_SECONDS = 20.0  # a client that does not answer for so long is gone
_NO_ROOM = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 5\r\n"
    b"Connection: close\r\n\r\n"
    b'{"error": {"kind": "busy", "message": "too many connections", "hint": "try again later"}}'
)

log = logging.getLogger("holdfast.server")


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises Conflict for a port in use, BadInput for a bad host or port."""
    if not 0 <= port <= MAX_PORT:  # getaddrinfo would cut it to 16 bits, and listen elsewhere
        raise BadInput(f"no such port: {port}", hint="from 0 to 65535; 0 takes a free one")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise BadInput(
            f"no such host: {host!r}", hint="an address or name of this machine"
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise Conflict(
                f"port {port} on {host} is in use",
                hint="stop what listens there, or choose another port; --port 0 takes a free one",
            ) from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise BadInput(f"{host} is not an address of this machine") from None
        raise from_os_error(error, f"listening on {host}, port {port}") from error
    return listener


def address(listener: socket.socket) -> str:
    """The URL at which the listener answers."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Shares:
    """Connections, of which there may be so many, and so many from one address.

    Descriptors are for sandboxes and the store, too: a server that has used up its own for visitors
    can neither freeze nor answer. So there is an end to connections before there is one to them.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.most_of_one = max(1, most // 2)  # as many others may be behind one proxy
        self._held: dict[asyncio.BaseTransport, str] = {}
        self._of: Counter[str] = Counter()
        self._told = 0.0

    def enter(self, transport: asyncio.BaseTransport) -> bool:
        """Whether there is room for one more from there."""
        place = _place(transport.get_extra_info("peername"))
        if len(self._held) >= self.most or self._of[place] >= self.most_of_one:
            if (now := time.monotonic()) - self._told > TELL_SECONDS:
                self._told = now
                log.warning(
                    "connections are refused: %d are open, %d of them from %s",
                    len(self._held),
                    self._of[place],
                    place or "there",
                )
            return False
        self._held[transport] = place
        self._of[place] += 1
        return True

    def leave(self, transport: asyncio.BaseTransport | None) -> None:
        """May be called twice, and for one that was refused."""
        place = self._held.pop(transport, None) if transport is not None else None
        if place is not None:
            self._of[place] -= 1
            if not self._of[place]:
                del self._of[place]


def _place(peer: object) -> str:
    """Where a connection comes from: an address, or the network that one IPv6 user has."""
    try:
        address = ip_address(str(peer[0]).partition("%")[0])  # type: ignore[index]  # or an error
    except (TypeError, IndexError, ValueError):
        return ""
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or ip_network((address, 64), strict=False))
    return str(address)


def make_room() -> int:
    """Raise the limit of open files as far as we may, and say how many connections that is for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return max(16, (MOST_FILES if soft == resource.RLIM_INFINITY else soft) // 2)


class _Protocol(H11Protocol):
    """uvicorn's HTTP, but a request that never arrives whole does not stay open for ever.

    A head must be whole in one span of time. A body may take any number of them, if each brings
    enough bytes, or if the server itself has stopped reading because it is busy with what came.
    """

    _arriving: asyncio.TimerHandle | None = None
    _in_body = False
    _came = 0  # bytes, since the timer was set
    _refused = False

    def __init__(self, *given: Any, shares: Shares, **named: Any) -> None:
        super().__init__(*given, **named)
        self._shares = shares

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        if not self._shares.enter(transport):
            self._refused = True
            self.transport = transport
            transport.write(_NO_ROOM)
            transport.close()
            return
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._came += len(data)
        super().data_received(data)
        if self.transport.get_protocol() is not self:
            self._arrived()  # it is a WebSocket now, which may be silent for as long as it likes
        elif self.conn.their_state is h11.IDLE:
            self._expect()
        elif self.conn.their_state is h11.SEND_BODY:
            if not self._in_body:
                self._arrived()
                self._in_body = True
                self._expect()
        else:
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        self._shares.leave(self.transport)
        if self._refused:
            return
        self._arrived()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        if not self._refused:
            super().pause_writing()

    def resume_writing(self) -> None:
        if not self._refused:
            super().resume_writing()

    def _expect(self) -> None:
        if self._arriving is None:
            self._came = 0
            self._arriving = self.loop.call_later(REQUEST_SECONDS, self._look)

    def _look(self) -> None:
        """The time is over: for a head, or for the next piece of a body."""
        self._arriving = None
        fast = self.flow.read_paused or self._came >= BODY_BYTES_A_SECOND * REQUEST_SECONDS
        if self._in_body and fast and not self.cycle.response_complete:
            self._expect()
        else:
            self.transport.abort()

    def _arrived(self) -> None:
        self._in_body = False
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None


class _Socket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, which gives its share back."""

    def __init__(self, *given: Any, shares: Shares, **named: Any) -> None:
        super().__init__(*given, **named)
        self._shares = shares

    def connection_lost(self, exc: Exception | None) -> None:
        self._shares.leave(self.transport)
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        # uvicorn would raise the signal again after its shutdown, and a service that ended as it
        # was asked to would look as if it had been killed.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def serve(app: ASGIApp, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Answer until SIGTERM or SIGINT; requests that are under way may finish within the grace.

    `ready` is called once it answers, and once a signal ends it in good order.
    """
    shares = Shares(make_room())
    config = uvicorn.Config(
        Ending(app),
        http=partial(_Protocol, shares=shares),  # type: ignore[arg-type]  # it makes one
        log_config=None,  # logs.py sees to that
        access_log=False,
        lifespan="on",
        ws=partial(_Socket, shares=shares),  # type: ignore[arg-type]
        ws_max_size=WEBSOCKET_BYTES,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        proxy_headers=False,  # nobody in front of us is known, so nobody is believed
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=IDLE_SECONDS,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )
    _Server(config, ready).run(sockets=[listener])
