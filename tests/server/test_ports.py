"""Published ports: HTTP and WebSockets to programs inside, for those who may."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import websockets
from tests.server.conftest import Server, Starter
from tests.server.sandbox_client import Wire, attach, created
from websockets.asyncio.client import connect

SERVICE = r"""
import base64, hashlib, http.server, struct

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            return self.echo()
        said = f"{self.command} {self.path}\n{self.headers}".encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "mine=1; Path=/; Domain=example.org; HttpOnly")
        self.send_header("Set-Cookie", "holdfast=stolen")
        self.send_header("Clear-Site-Data", "*")
        self.send_header("X-Own", "kept")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def do_POST(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while length := int(self.rfile.readline(), 16):
                body += self.rfile.read(length)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for start in range(0, len(body), 100_000):
            piece = body[start : start + 100_000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def echo(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_header("Sec-WebSocket-Accept", accept)
        if self.headers.get("Sec-WebSocket-Protocol"):
            self.send_header("Sec-WebSocket-Protocol", self.headers["Sec-WebSocket-Protocol"])
        self.end_headers()
        self.close_connection = True
        while True:
            first, second = self.rfile.read(2)
            length = second & 127
            if length == 126:
                length = struct.unpack(">H", self.rfile.read(2))[0]
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(length)))
            head = struct.pack(">BB", first, min(length, 126))
            if length > 125:
                head += struct.pack(">H", length)
            self.wfile.write(head + data)
            if first & 15 == 8:
                return

    def log_message(self, *args):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


async def serving(server: Server, **options: object) -> Wire:
    """A sandbox with the service in it."""
    wire = await created(server, ports=[8000, 8001], **options)
    await wire.send(language="python", code=SERVICE, process_id="service")
    return wire


def place(server: Server, wire: Wire, port: int = 8000) -> str:
    return f"{server.address}/v1/sandboxes/{wire.identity[0]}/ports/{port}"


async def answering(client: httpx.AsyncClient, url: str) -> httpx.Response:
    deadline = time.monotonic() + 60
    while (answer := await client.get(url)).status_code == 404:
        assert time.monotonic() < deadline, answer.text
        await asyncio.sleep(0.05)
    return answer


@pytest.mark.parametrize(
    "engine", ["process", "gvisor", pytest.param("runc", marks=pytest.mark.soak)]
)
async def test_http_and_websockets(start: Starter, engine: str) -> None:
    server = start("--engine", engine)
    wire = await serving(server, enable_checkpoint=True)
    url = place(server, wire)
    headers = {"Authorization": f"Bearer {server.token}", "Cookie": "holdfast=secret; own=1"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as client:
        got = await answering(client, f"{url}/a%20b/c?x=1&sandbox_token=t&y=2")
        assert got.text.startswith("GET /a%20b/c?x=1&y=2\n")
        for secret in (str(server.token), "secret", "sandbox_token"):
            assert secret not in got.text  # nothing of ours goes inside
        assert "own=1" in got.text
        assert got.headers["X-Own"] == "kept"
        assert got.headers["Content-Security-Policy"].startswith("sandbox ")
        assert "Clear-Site-Data" not in got.headers
        assert got.headers.get_list("set-cookie") == [
            f"mine=1; HttpOnly; Path={url.removeprefix(server.address)}/"
        ]
        body = bytes(range(256)) * 4000
        posted = await client.post(f"{url}/echo", content=body)
        assert (posted.status_code, posted.content == body) == (201, True)

        async def pieces() -> object:
            for start_ in range(0, len(body), 50_000):
                yield body[start_ : start_ + 50_000]

        posted = await client.post(f"{url}/echo", content=pieces())  # type: ignore[arg-type]
        assert posted.content == body
        several = await asyncio.gather(*(client.get(f"{url}/{n}") for n in range(8)))
        assert [each.text.split()[1] for each in several] == [f"/{n}" for n in range(8)]
        # Closed unless asked for, and nobody there.
        closed = await client.get(place(server, wire, 22) + "/")
        assert (closed.status_code, closed.json()["error"]["kind"]) == (403, "denied")
        nobody = await client.get(place(server, wire, 8001) + "/")
        assert (nobody.status_code, nobody.json()["error"]["kind"]) == (404, "not_found")

        far = url.replace("http", "ws", 1) + "/socket"
        auth = {"Authorization": f"Bearer {server.token}"}
        async with connect(far, additional_headers=auth, subprotocols=["chat"]) as socket:  # type: ignore[list-item]
            assert socket.subprotocol == "chat"
            for message in ("wörd", b"\xff\x00", "x" * 5000):
                await socket.send(message)
                assert await asyncio.wait_for(socket.recv(), 60) == message
        with pytest.raises(websockets.InvalidStatus):
            await connect(
                place(server, wire, 22).replace("http", "ws", 1) + "/x", additional_headers=auth
            )
        # After a checkpoint the service goes on, where memory comes back, and is reached again.
        await wire.send(
            action="checkpoint", leave_running=True, during_execution=engine != "process"
        )
        words = await wire.until("CHECKPOINTED" if engine != "process" else "error")
        assert "CHECKPOINTING" in words
        assert (await answering(client, f"{url}/again")).text.startswith("GET /again\n")
        if engine != "process":
            await wire.send(action="checkpoint", during_execution=True)
            await wire.rest()
            assert wire.heard[-1].get("status") == "SANDBOX_CHECKPOINTED", wire.heard[-3:]
            assert (await client.get(f"{url}/gone")).status_code == 404
            async with attach(server, wire.identity) as back:
                await back.until("RUNNING")
                assert (await answering(client, f"{url}/back")).text.startswith("GET /back\n")
                await back.send(action="kill_sandbox")
                await back.rest()
        else:
            await wire.send(action="kill_sandbox")
            await wire.rest()


async def test_a_tenant_needs_the_token_of_the_sandbox(start: Starter, tmp_path: Path) -> None:
    token = "token-of-a-tenant-of-this-server"
    (tmp_path / "tokens.toml").write_text(f'[one]\ntoken = "{token}"\n')
    server = start("--engine", "process", "--tokens", str(tmp_path / "tokens.toml"))
    wire = await serving(replace(server, token=token))
    url = f"{place(server, wire)}/x"
    async with httpx.AsyncClient(timeout=60) as client:
        assert (await client.get(url)).status_code == 401
        auth = {"Authorization": f"Bearer {token}"}
        assert (await client.get(url, headers=auth)).status_code == 403
        wrong = {**auth, "Holdfast-Sandbox-Token": "wrong"}
        assert (await client.get(url, headers=wrong)).status_code == 403
    right = {**auth, "Holdfast-Sandbox-Token": wire.identity[1]}
    async with httpx.AsyncClient(headers=right, timeout=60) as client:
        got = await answering(client, url)
        assert got.status_code == 200
        assert wire.identity[1] not in got.text
    async with httpx.AsyncClient(headers=auth, timeout=60) as client:
        assert (await client.get(f"{url}?sandbox_token={wire.identity[1]}")).status_code == 200
    await wire.send(action="kill_sandbox")
    await wire.rest()
