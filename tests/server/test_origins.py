"""Pages of other origins change nothing, with a cookie or where no token is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from tests.server.conftest import Server, Starter

FOREIGN = ("http://evil.example", "http://127.0.0.1:1", "https://evil.example:8787", "null", "x")
CHANGES = (
    ("POST", "/execute"),
    ("POST", "/v1/prune"),
    ("POST", "/v1/import?trust=true"),
    ("POST", "/v1/sessions"),
    ("DELETE", "/v1/checkpoints/0000"),
    ("POST", "/login"),
    ("POST", "/logout"),
    ("PUT", "/v1/sandboxes/0/ports/80/"),
)


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that asks for no token."""
    folder = str(tmp_path_factory.mktemp("unguarded"))
    with Starter(HOLDFAST_HOME=folder, XDG_CONFIG_HOME=folder) as starter:
        yield starter("--auth", "none", "--engine", "process", "--pool", "0")


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_foreign_pages_change_nothing(
    unguarded: Server, method: str, path: str, origin: str
) -> None:
    # As `fetch(url, {method, mode: "no-cors", body})` sends it.
    headers = {"Origin": origin, "Content-Type": "text/plain;charset=UTF-8"}
    with unguarded.client(**headers) as client:
        answer = client.request(method, path, content=b"print(1)")
    assert (answer.status_code, answer.json()["error"]["kind"]) == (403, "denied")
    assert "another origin" in answer.json()["error"]["message"]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_browsers_word_counts_without_origin(unguarded: Server, site: str) -> None:
    with unguarded.client(**{"Sec-Fetch-Site": site}) as client:
        assert client.post("/execute", content=b"print(1)").status_code == 403


def test_cookies_serve_no_other_port(empty: Server) -> None:
    with empty.client() as client:
        client.post("/login", data={"token": empty.token})
        assert client.cookies
        elsewhere = {"Origin": "http://127.0.0.1:9", "Sec-Fetch-Site": "same-site"}
        assert client.post("/v1/verify", headers=elsewhere).status_code == 403
        own = {"Origin": empty.address, "Sec-Fetch-Site": "same-origin"}
        assert client.post("/v1/verify", headers=own).status_code == 200


def test_programs_and_own_pages_may_change(unguarded: Server) -> None:
    with unguarded.client() as client:
        assert client.post("/execute", content=b"print(1)").text == "1\n"
        own = {"Origin": unguarded.address, "Sec-Fetch-Site": "same-origin"}
        assert client.post("/execute", content=b"print(2)", headers=own).text == "2\n"
        typed = {"Sec-Fetch-Site": "none"}
        assert client.post("/v1/verify", headers=typed).status_code == 200


def test_a_public_address_is_an_own_origin(start: Starter) -> None:
    server = start("--public-url", "https://holdfast.example/")
    with server.client(server.token, Host="holdfast.example") as client:
        for origin, expected in (
            ("https://holdfast.example", 200),
            ("http://holdfast.example", 403),
            ("https://other.example", 403),
        ):
            answer = client.post("/v1/verify", headers={"Origin": origin})
            assert answer.status_code == expected, origin
    with server.client(server.token) as client:  # a proxy that does not pass the name on
        own = {"Origin": "https://holdfast.example"}
        assert client.post("/v1/verify", headers=own).status_code == 200


def test_the_cookie_is_secure_behind_tls(start: Starter) -> None:
    server = start("--public-url", "https://holdfast.example")
    with server.client() as client:
        answer = client.post("/login", data={"token": server.token})
    cookie = answer.headers["set-cookie"].lower()
    assert "secure" in cookie
    assert "max-age=" in cookie


def test_a_bad_public_address_is_refused(start: Starter) -> None:
    with pytest.raises(AssertionError, match="public_url"):
        start("--public-url", "holdfast.example")


def test_no_answer_lets_others_read(unguarded: Server) -> None:
    answer = httpx.get(
        f"{unguarded.address}/v1/subjects", headers={"Origin": "http://evil.example"}, timeout=20
    )
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
