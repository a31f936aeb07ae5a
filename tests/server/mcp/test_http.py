"""HTTP: who is let in, and several clients at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import httpx
import pytest
from tests.server.mcp.conftest import Http, told

from holdfast.cli.main import main

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def post(http: Http, **headers: str) -> httpx.Response:
    return httpx.post(http.url, json=PING, headers={**ACCEPT, **headers}, timeout=20)


def test_nobody_comes_in_without_the_token(http: Http) -> None:
    assert post(http, Accept="text/html").status_code == 401
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = post(http, **headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["kind"] == "denied"
        assert answer.json()["error"]["hint"]
    for path in ("/mcp", "/anything"):
        url = http.url.removesuffix("/mcp") + path
        assert httpx.get(url, headers=ACCEPT, timeout=20).status_code == 401
    status = httpx.get(http.url.replace("/mcp", "/status"), timeout=20)
    assert status.json()["status"] == "ok"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:1"])
def test_a_page_of_another_site_is_refused(http: Http, origin: str) -> None:
    answer = post(http, Authorization=f"Bearer {http.token}", Origin=origin)
    assert answer.status_code == 403


def test_a_name_that_was_pointed_at_this_machine_is_refused(http: Http) -> None:
    site = "evil.example:8788"
    answer = post(http, Authorization=f"Bearer {http.token}", Host=site, Origin=f"http://{site}")
    assert answer.status_code == 421
    assert post(http, Host=site).status_code == 401


async def test_two_clients_at_once_see_the_same_session(http: Http) -> None:
    async def one(name: str) -> None:
        async with http.connect("legacy" if name == "a" else "auto") as client:
            for number in range(5):
                code = f"said.append('{name}{number}')"
                told(await client.call_tool("execute", {"code": code, "subject": "shared"}))
                own = {"code": f"n = {number}\nn", "subject": f"own-{name}"}
                assert told(await client.call_tool("execute", own))["value"] == number

    async with http.connect() as client:
        told(await client.call_tool("execute", {"code": "said = []", "subject": "shared"}))
        await asyncio.gather(one("a"), one("b"))
        asked = {"code": "said", "subject": "shared"}
        said = told(await client.call_tool("execute", asked))["value"]
    assert sorted(said) == [f"{name}{number}" for name in "ab" for number in range(5)]
    assert [each for each in said if each[0] == "a"] == [f"a{number}" for number in range(5)]


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--workspace", "nowhere"], 11, "there is no folder nowhere"),
        (["--session", "a b"], 11, "bad subject name"),
        (["--server", "nonsense"], 11, "not a server's address"),
        (["--http", "--host", "no.such.host.invalid"], 11, "no such host"),
        (["--http", "--port", "65536"], 2, "'--port': '65536' is not a port"),
        (["--http", "--port", "abc"], 2, "'--port': 'abc' is not a port"),
    ],
)
def test_what_cannot_be_is_said_at_the_start(
    options: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", *options]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert text in said.err
    assert "hint: " in said.err


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys\nsys.modules.update(mcp=None, mcp_types=None)\n"
        "from holdfast.cli.main import main\nsys.exit(main(['mcp']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 5
    assert "pip install 'holdfast[mcp]'" in done.stderr
