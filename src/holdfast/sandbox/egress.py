"""Egress: the proxy through which programs of a sandbox reach the domains that they were allowed.

The sandbox has no network; the switch inside carries what its programs say to the proxy's port to
here, where it is looked at: CONNECT and plain HTTP, nothing else. Names are resolved here, and only
the address that was looked at is connected to.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal
from urllib.parse import urlsplit

from holdfast.model.errors import BadInput, Denied, HoldfastError
from holdfast.sandbox.switchboard import Channel

PORT = 3128  # of the loopback inside
PORTS = (80, 443)  # of a domain for which no port was named
MOST_HEAD = 64 << 10
HEAD_SECONDS, CONNECT_SECONDS = 30.0, 20.0
BLOCK = 64 << 10
Reach = Literal["public", "any", "off"]
Address = IPv4Address | IPv6Address
Resolve = Callable[[str], Awaitable[list[Address]]]

_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,62}[a-z0-9_])?"
_RULE = re.compile(rf"(\*\.)?({_LABEL}\.)*{_LABEL}(:\d{{1,5}})?")
_HOP = {b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"te"}


@dataclass(frozen=True, slots=True)
class Wish:
    """Where a program wants to go; `head` is what the other side is told first, if anything."""

    host: str
    port: int
    head: bytes | None  # None: CONNECT


def check_rules(rules: Sequence[str]) -> None:
    """Raises BadInput for what is no domain."""
    for rule in rules:
        _, _, port = rule.partition(":")
        if not _RULE.fullmatch(rule.lower()) or (port and not 0 < int(port) <= 65535):
            raise BadInput(f"not a domain: {rule!r:.100}", hint="name, *.name or name:port")


def allows(rules: Sequence[str], host: str, port: int) -> bool:
    """Whether one of the rules is for this place."""
    host = host.lower().rstrip(".")
    for rule in rules:
        name, _, wanted = rule.lower().partition(":")
        if (port != int(wanted)) if wanted else (port not in PORTS):
            continue
        if host == name or (name.startswith("*.") and host.endswith(name[1:])):
            return True
    return False


def read_head(head: bytes) -> Wish:
    """What the first lines of a request ask for. Raises BadInput."""
    lines = head.split(b"\r\n")
    try:
        method, target, version = lines[0].decode("ascii").split(" ")
    except ValueError:
        raise BadInput("this is no HTTP") from None
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadInput("this is no HTTP")
    try:
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadInput("the address cannot be read") from None
    if not host or (method == "CONNECT" and (port is None or parts.path or parts.query)):
        raise BadInput("the request names no address", hint="use it as a proxy")
    if method == "CONNECT":
        return Wish(host, port or 0, None)
    if parts.scheme != "http":
        raise BadInput(f"the proxy does not speak {parts.scheme!r:.20}", hint="CONNECT, or http://")
    kept = [line for line in lines[1:] if line.partition(b":")[0].strip().lower() not in _HOP]
    kept = [line for line in kept if not line.lower().startswith(b"host:")]
    path = parts.path or "/"
    path += f"?{parts.query}" if parts.query else ""
    place = host if port in (None, 80) else f"{host}:{port}"
    first = f"{method} {path} {version}\r\nHost: {place}\r\nConnection: close".encode("ascii")
    return Wish(host, port or 80, b"\r\n".join([first, *(line for line in kept if line), b"", b""]))


async def resolve(host: str) -> list[Address]:
    """The addresses of a name, as this machine knows them. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [ip_address(each[4][0]) for each in found]


class Egress:
    """The proxy of one sandbox."""

    def __init__(self, rules: Sequence[str], reach: Reach, find: Resolve = resolve) -> None:
        self._rules = tuple(rules)
        self._reach = reach
        self._find = find

    async def answer(self, channel: Channel) -> None:
        """Serve one connection to its end."""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head, rest = await _first(channel)
            wish = read_head(head)
            reader, writer = await self._open(wish)
        except (HoldfastError, OSError, TimeoutError) as error:
            await _refuse(channel, error)
            return
        try:
            if wish.head is None:
                await channel.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                writer.write(wish.head)
            writer.write(rest)
            await asyncio.gather(_outward(channel, writer), _inward(reader, channel))
        except OSError:
            return  # one side has gone; the other is told by the end
        finally:
            writer.close()

    async def _open(self, wish: Wish) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not allows(self._rules, wish.host, wish.port):
            raise Denied(f"{wish.host}:{wish.port} is not among what this sandbox may reach")
        async with asyncio.timeout(CONNECT_SECONDS):
            found = await self._find(wish.host)
            open_to = [each for each in found if self._reach == "any" or each.is_global]
            if not open_to:
                raise Denied(f"{wish.host} is not a public place")
            # The address, not the name: the name may mean another one by now.
            return await asyncio.open_connection(str(open_to[0]), wish.port)


async def _first(channel: Channel) -> tuple[bytes, bytes]:
    held = b""
    while b"\r\n\r\n" not in held:
        block = await channel.read()
        held += block
        if not block or len(held) > MOST_HEAD:
            raise BadInput("this is no HTTP")
    head, _, rest = held.partition(b"\r\n\r\n")
    return head, rest


async def _outward(channel: Channel, writer: asyncio.StreamWriter) -> None:
    while data := await channel.read():
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        with suppress(OSError):
            writer.write_eof()


async def _inward(reader: asyncio.StreamReader, channel: Channel) -> None:
    while data := await reader.read(BLOCK):
        await channel.write(data)
    await channel.end()


async def _refuse(channel: Channel, error: BaseException) -> None:
    status = "403 Forbidden" if isinstance(error, Denied) else "502 Bad Gateway"
    status = "400 Bad Request" if isinstance(error, BadInput) else status
    said = f"{str(error) or 'it took too long'}\n".encode("utf-8", "replace")
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
    head += f"Content-Length: {len(said)}\r\nConnection: close\r\n\r\n"
    with suppress(OSError):
        await channel.write(head.encode() + said)
        await channel.end()
