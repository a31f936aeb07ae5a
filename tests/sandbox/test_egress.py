"""The way out of a sandbox: only to what was allowed, and only as HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.model.errors import BadInput
from holdfast.sandbox import languages, roots
from holdfast.sandbox.body import Body, Workshop
from holdfast.sandbox.choice import choose
from holdfast.sandbox.contract import Limits
from holdfast.sandbox.egress import PORT, Address, Egress, Wish, allows, check_rules, read_head
from holdfast.sandbox.start import Start
from holdfast.sandbox.switchboard import Switchboard

SMALL = Limits(memory_bytes=512 << 20, processes=64, disk_bytes=32 << 20)


@pytest.mark.parametrize(
    ("rules", "host", "port", "fits"),
    [
        (["example.org"], "example.org", 443, True),
        (["example.org"], "EXAMPLE.org.", 80, True),
        (["example.org"], "www.example.org", 443, False),
        (["example.org"], "example.org", 22, False),
        (["example.org:8443"], "example.org", 8443, True),
        (["example.org:8443"], "example.org", 443, False),
        (["*.example.org"], "a.b.example.org", 443, True),
        (["*.example.org"], "example.org", 443, False),
        (["*.example.org"], "badexample.org", 443, False),
        (["example.org"], "example.org.evil.test", 443, False),
        ([], "example.org", 443, False),
        (["127.0.0.1:80"], "127.0.0.1", 80, True),
    ],
)
def test_what_a_rule_allows(rules: list[str], host: str, port: int, fits: bool) -> None:
    check_rules(rules)
    assert allows(rules, host, port) is fits


@pytest.mark.parametrize(
    "rule", ["", "*", "a b", "http://x.org", "x.org/", "x.org:0", "x.org:99999", "*.*.org", ".org"]
)
def test_what_is_no_rule(rule: str) -> None:
    with pytest.raises(BadInput):
        check_rules([rule])


def test_heads() -> None:
    assert read_head(b"CONNECT a.test:443 HTTP/1.1\r\nHost: x") == Wish("a.test", 443, None)
    plain = read_head(
        b"GET http://a.test/p?q=1 HTTP/1.1\r\nHost: evil\r\nProxy-Authorization: x\r\nA: 1"
    )
    assert (plain.host, plain.port) == ("a.test", 80)
    assert plain.head == (
        b"GET /p?q=1 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nA: 1\r\n\r\n"
    )
    assert read_head(b"GET http://[::1]:8080/ HTTP/1.1").port == 8080
    for bad in (b"", b"\x16\x03\x01", b"GET / HTTP/1.1", b"CONNECT a.test HTTP/1.1"):
        with pytest.raises(BadInput):
            read_head(bad)
    for bad in (b"GET ftp://a.test/ HTTP/1.1", b"CONNECT a:99999 HTTP/1.1", b"SSH-2.0-x y z"):
        with pytest.raises(BadInput):
            read_head(bad)


class Upstream(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        said = f"{self.headers['Host']} {self.path}\n".encode() + b"x" * 300_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def upstream() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


@pytest_asyncio.fixture(params=["process", "gvisor", pytest.param("runc", marks=pytest.mark.soak)])
async def body(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Body]:
    workshop = Workshop(choose(request.param), tmp_path / "boxes")
    made = await workshop.make(roots.default(tmp_path / "root"), SMALL)
    yield made
    await made.end()
    await made.clear()


async def test_only_what_was_allowed_is_reached(body: Body, upstream: int) -> None:
    names = {"allowed.test": "127.0.0.1", "private.test": "10.1.2.3"}

    async def find(host: str) -> list[Address]:
        if host not in names:
            raise OSError(f"{host} is not known")
        return [ip_address(names[host])]

    rules = [f"allowed.test:{upstream}", f"unknown.test:{upstream}"]
    board = Switchboard(Egress(rules, "any", find).answer)
    await board.begin(body.line, PORT)

    async def run(code: str) -> str:
        env = {"PATH": body.build.root.path, **languages.proxied(f"http://127.0.0.1:{PORT}")}
        process = await body.line.start(Start(argv=[*body.build.root.python, "-c", code], env=env))
        await asyncio.wait_for(process.wait(), 60)
        return b"".join(each.data for each in process.replay.after(0)).decode("utf-8", "replace")

    get = """
import urllib.request, urllib.error
try:
    with urllib.request.urlopen({url!r}, timeout=30) as answer:
        said = answer.read()
        print(answer.status, said[:40].split(b"\\n")[0].decode(), len(said))
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode().strip())
"""
    told = await run(get.format(url=f"http://allowed.test:{upstream}/page"))
    assert told.startswith(f"200 allowed.test:{upstream} /page 3000"), told
    told = await run(get.format(url=f"http://private.test:{upstream}/"))
    assert told.startswith("403 private.test"), told
    told = await run(get.format(url=f"http://unknown.test:{upstream}/"))
    assert told.startswith("502 unknown.test is not known"), told
    # A tunnel by CONNECT, as for TLS; and everything else is no way out.
    tunnel = """
import socket
def say(first, then=b""):
    link = socket.create_connection(("127.0.0.1", {proxy}), 30)
    link.sendall(first)
    told = link.recv(100)
    if then:
        link.sendall(then)
        while block := link.recv(65536):
            told += block
    return told
request = b"GET /t HTTP/1.0\\r\\nHost: h\\r\\n\\r\\n"
told = say(b"CONNECT allowed.test:{port} HTTP/1.1\\r\\n\\r\\n", request)
print(told.startswith(b"HTTP/1.1 200") and len(told) > 300000)
print(say(b"CONNECT allowed.test:22 HTTP/1.1\\r\\n\\r\\n").split()[1])
print(say(b"SSH-2.0-OpenSSH_9.2\\r\\n\\r\\n").split()[1])
for address in (("127.0.0.1", {port}), ("10.255.255.1", 80)):
    try:
        socket.create_connection(address, 2)
        print("reached")
    except OSError:
        print("no way")
"""
    told = await run(tunnel.format(proxy=PORT, port=upstream))
    assert told.split("\n")[:5] == ["True", "b'403'", "b'400'", "no way", "no way"], told
    # Where only public places may be reached, a name that leads elsewhere does not help.
    await board.close()
    public = Switchboard(Egress(rules, "public", find).answer)
    await public.begin(body.line, PORT)
    told = await run(get.format(url=f"http://allowed.test:{upstream}/page"))
    assert told.startswith("403 allowed.test is not a public place"), told
    await public.close()


async def test_a_switch_that_ends_lets_go_of_everybody(body: Body) -> None:
    board = Switchboard()
    await board.begin(body.line)
    listen = "import socket, time\ns = socket.create_server(('127.0.0.1', 9000))\n"
    listen += "print('on', flush=True)\nc, _ = s.accept()\nwhile d := c.recv(100): c.sendall(d)\n"
    env = {"PATH": body.build.root.path}
    process = await body.line.start(Start(argv=[*body.build.root.python, "-c", listen], env=env))
    while not process.replay.end:
        await process.changed()
    channel = await board.connect(9000)
    await channel.write(b"hello")
    assert await channel.read() == b"hello"
    killer = await body.line.start(
        Start(argv=["bash", "-c", "kill -9 -1"], env=env)  # all that the sandbox's user runs
    )
    await asyncio.wait_for(killer.wait(), 60)
    assert await asyncio.wait_for(channel.read(), 60) == b""
    with pytest.raises(ConnectionError):
        await channel.write(b"x")
    assert not board.alive
