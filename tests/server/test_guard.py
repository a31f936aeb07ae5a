"""Who may come in."""

from __future__ import annotations

import time

import httpx
import pytest
from starlette.datastructures import Headers
from tests.server.conftest import ANSWER, Server, Starter, add

from holdfast.server.guard import COOKIE, COOKIE_SECONDS, Pass, is_loopback
from holdfast.store import Store

PATHS = ["/", "/v1/subjects", "/v1/checkpoints", "/subjects/state/x", "/logout", "/nothing", "//"]


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong", "Basic {token}", "{token}", "Bearer {token}x"],
)
def test_nobody_gets_past_without_the_token(empty: Server, authorization: str | None) -> None:
    headers = {}
    if authorization is not None:
        headers["Authorization"] = authorization.format(token=empty.token)
    with empty.client(**headers) as client:
        for path in PATHS:
            answer = client.get(path)
            assert answer.status_code == 401, path
            assert answer.json()["error"]["kind"] == "denied"
            assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_the_token_opens_everything(empty: Server) -> None:
    for scheme in ("Bearer", "bearer"):
        with empty.client(Authorization=f"{scheme} {empty.token}") as client:
            assert client.get("/v1/subjects").status_code == 200
            assert client.get("/").status_code == 200
            assert client.get("/nothing").status_code == 404


def test_the_token_counts_in_no_address(empty: Server) -> None:
    with empty.client() as client:
        for name in ("token", "access_token", "sandbox_token"):
            assert client.get("/v1/subjects", params={name: empty.token}).status_code == 401


def test_the_login(start: Starter, store: Store) -> None:
    server = start()
    add(store, "state/demo")
    with server.client(Accept="text/html") as client:
        answer = client.get("/subjects/state/demo")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/login?next=/subjects/state/demo"
        form = client.get(answer.headers["location"])
        assert form.status_code == 200
        assert 'value="/subjects/state/demo"' in form.text

        wrong = client.post("/login", data={"token": "wrong", "next": "/"})
        assert wrong.status_code == 401
        assert "That is not the token" in wrong.text
        assert not client.cookies

        right = client.post("/login", data={"token": server.token, "next": "/subjects/state/demo"})
        assert right.status_code == 303
        assert right.headers["location"] == "/subjects/state/demo"
        cookie = right.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert (server.token or "").lower() not in cookie

        assert client.get("/subjects/state/demo").status_code == 200
        assert client.get("/v1/subjects").status_code == 200

        assert client.post("/logout").headers["location"] == "/login"
        assert client.get("/").status_code == 303


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/\\evil.example", "x", "", "/a\r\nb"]
)
def test_the_login_leads_nowhere_else(empty: Server, target: str) -> None:
    with empty.client() as client:
        answer = client.post("/login", data={"token": empty.token, "next": target})
        assert answer.headers["location"] == "/"


def test_a_forged_cookie_opens_nothing(empty: Server) -> None:
    for cookie in ("holdfast=", "holdfast=" + "0" * 64, f"holdfast={empty.token}", "=;;", "[]"):
        with empty.client(Cookie=cookie) as client:
            assert client.get("/v1/subjects").status_code == 401


def test_a_long_form_is_refused(empty: Server) -> None:
    with empty.client() as client:
        answer = client.post("/login", content=b"token=" + b"x" * 100_000)
        assert answer.status_code == 422


def test_a_websocket_is_refused(empty: Server) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    answer = httpx.get(f"{empty.address}/create", headers=upgrade, timeout=ANSWER)
    assert answer.status_code == 403
    elsewhere = {**upgrade, "Origin": "http://evil.example"}
    elsewhere["Authorization"] = f"Bearer {empty.token}"
    answer = httpx.get(f"{empty.address}/create", headers=elsewhere, timeout=ANSWER)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_the_cookie_ends_by_itself() -> None:
    """Whatever a browser does: how long it is good for is part of it, and cannot be changed."""
    credentials = Pass("a-token-of-the-server")
    now = time.time()
    good, over = credentials.cookie(now), credentials.cookie(now - COOKIE_SECONDS - 1)
    until, _, proof = good.partition(".")
    admitted = {
        value: credentials.admits(Headers({"cookie": f"{COOKIE}={value}"})) is not None
        for value in (good, over, f"{int(until) + 1}.{proof}", f"9{until}.{proof}", proof, ".")
    }
    assert [value for value, is_in in admitted.items() if is_in] == [good]
    assert Pass("another-token").admits(Headers({"cookie": f"{COOKIE}={good}"})) is None
