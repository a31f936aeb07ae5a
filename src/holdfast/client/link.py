"""A link to a server: one WebSocket, found again with growing pauses when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlunsplit

from holdfast.model.addresses import check_token, server_address
from holdfast.model.errors import Denied, HoldfastError, NotFound, Unsupported
from holdfast.model.tracing import outgoing

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

OPEN_SECONDS = 20.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


class Unreachable(HoldfastError):
    """The server cannot be reached: the network, the address, or the server is to blame."""


def address(url: str, path: str, **query: str) -> str:
    """Where a WebSocket goes. Raises BadInput for what is no address of a server."""
    parts = server_address(url, tuple(SCHEMES))
    asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    return urlunsplit(
        (SCHEMES[parts.scheme], parts.netloc, parts.path.rstrip("/") + path, asked, "")
    )


def pauses(seconds: float) -> list[float]:
    """How long to wait before each try, until the time is over: growing, and never in step with
    other clients."""
    found: list[float] = []
    pause = FIRST_PAUSE
    while sum(found) < seconds:
        found.append(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, LONGEST_PAUSE)
    return found


class Link:
    """An open WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._posts: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, url: str, token: str | None, cookies: dict[str, str] | None = None) -> Link:
        """Connect, with the cookies that were set before, and note those that are set now: a load
        balancer finds the same server again by them. Raises Denied, NotFound or Unreachable."""
        try:
            import websockets
            from websockets.asyncio.client import connect
        except ModuleNotFoundError:
            raise Unsupported(
                "the sandbox client needs websockets", hint="pip install 'holdfast[server]'"
            ) from None
        check_token(token)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        outgoing(headers)
        try:
            socket = await connect(
                url, additional_headers=headers, max_size=64 << 20, open_timeout=OPEN_SECONDS
            )
        except websockets.InvalidStatus as error:
            status = error.response.status_code
            if status in (401, 403):
                raise Denied(
                    "the server does not let us in", hint="give its token: token=..."
                ) from None
            if status == 404:
                raise NotFound("the server has no sandboxes at this address") from None
            raise Unreachable(f"the server answered {status}") from None
        except (OSError, TimeoutError, UnicodeError, websockets.WebSocketException) as error:
            raise Unreachable(
                f"the server cannot be reached: {error}", hint="is it running, at this address?"
            ) from None
        if cookies is not None and socket.response is not None:
            cookies.update(_cookies(socket.response.headers.get_all("Set-Cookie")))
        return cls(socket)

    async def send(self, message: Mapping[str, object]) -> None:
        """Raises Unreachable."""
        import websockets

        try:
            await self._socket.send(json.dumps(message))
        except websockets.WebSocketException as error:
            raise Unreachable(f"the connection broke: {error}") from None

    def post(self, message: Callable[[], Mapping[str, object]]) -> None:
        """Send what there is to say when its turn comes, if the connection lasts so long. For
        those who must not wait: the server may not listen before it has been heard."""

        async def send() -> None:
            with contextlib.suppress(Unreachable):  # whoever reads will see that, too
                await self.send(message())

        task = asyncio.get_running_loop().create_task(send())
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when the connection is closed."""
        import websockets

        try:
            message = json.loads(await self._socket.recv())
        except websockets.ConnectionClosed:
            return None
        except ValueError:
            return {}
        return message if isinstance(message, dict) else {}

    async def close(self) -> None:
        await self._socket.close()


def _cookies(given: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names and values; what else a cookie says is for browsers."""
    for each in given:
        name, equals, value = each.partition(";")[0].partition("=")
        if equals and name.strip():
            yield name.strip(), value.strip()


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)
