"""Listening: one socket, bound before anything else starts, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable, Generator

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.model.errors import BadInput, Conflict, from_os_error
from holdfast.server.answers import Ending

MAX_PORT = 65535
GRACE_SECONDS = 5
IDLE_SECONDS = 5  # between two requests on one connection
REQUEST_SECONDS = 20.0  # for a request to arrive whole: its head and its (small) body
HEAD_BYTES = 16 * 1024
WEBSOCKET_BYTES = 9 << 20  # of one frame; what is a little too long gets an answer in words
PING_SECONDS = 20.0  # a client that does not answer for so long is gone


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


class _Protocol(H11Protocol):
    """uvicorn's HTTP, but a request that never arrives whole does not stay open for ever."""

    _arriving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.get_protocol() is not self:
            self._arrived()  # it is a WebSocket now, which may be silent for as long as it likes
        elif self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._expect()
        else:
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self._arriving is None:
            self._arriving = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _arrived(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None


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
    config = uvicorn.Config(
        Ending(app),
        http=_Protocol,
        log_config=None,  # logs.py sees to that
        access_log=False,
        lifespan="on",
        ws="websockets-sansio",
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
