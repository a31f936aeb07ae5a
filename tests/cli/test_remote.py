"""How the command line speaks to a server, and what it says of one that is none."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.cli.conftest import Run


class Stranger:
    """A server that is not Holdfast's, and answers what it is told to."""

    def __init__(self) -> None:
        self.status, self.body = 200, b"{}"
        self.asked: list[tuple[str, str, str | None, object]] = []
        stranger = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                token = self.headers.get("Authorization")
                stranger.asked.append((self.command, self.path, token, body))
                self.send_response(stranger.status)
                self.end_headers()
                self.wfile.write(stranger.body)

            do_POST = do_DELETE = do_GET  # noqa: N815  as http.server calls them

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answers(self, status: int, body: bytes | dict[str, object]) -> None:
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    it = Stranger()
    thread = threading.Thread(target=it.server.serve_forever)
    thread.start()
    yield it
    it.server.shutdown()
    thread.join()
    it.server.server_close()


def error(kind: str) -> dict[str, object]:
    return {"error": {"kind": kind, "message": "no, because", "hint": "do that"}}


TEMPLATES = ("template", "list", "--server")
BUNDLE = ("bundle", "make", "b", "state/demo", "--server")


@pytest.mark.parametrize("command", [TEMPLATES, BUNDLE])
def test_an_error_is_told_by_its_kind(
    run: Run, ids: list[str], stranger: Stranger, command: tuple[str, ...]
) -> None:
    for kind, code in (("conflict", 4), ("denied", 8), ("of the future", 1)):
        stranger.answers(409, error(kind))
        done = run(*command, stranger.url)
        assert (done.code, done.err) == (code, "error: no, because\nhint: do that\n")


@pytest.mark.parametrize("command", [TEMPLATES, BUNDLE])
def test_the_token_goes_along(
    run: Run,
    ids: list[str],
    stranger: Stranger,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stranger.answers(401, error("denied"))
    without = run(*command, stranger.url)
    monkeypatch.setenv("HOLDFAST_TOKEN", "mine")
    wrong = run(*command, stranger.url)
    assert [asked[2] for asked in stranger.asked] == [None, "Bearer mine"]
    for done in (without, wrong):
        assert done.code == 8
        assert done.err.endswith("hint: HOLDFAST_TOKEN=... of that server\n")
    if command == BUNDLE:
        assert "runs it and wants its token\n" in without.err
        assert "runs it and wants its token, not this one\n" in wrong.err


def test_what_is_asked(run: Run, ids: list[str], stranger: Stranger) -> None:
    stranger.answers(404, error("not_found"))
    assert run(*TEMPLATES, stranger.url).code == 3
    assert run("template", "delete", "a b", "--server", f"{stranger.url}/").code == 3
    assert run(*BUNDLE, f"{stranger.url}/").code == 3
    members = {"name": "b", "members": ["state/demo"], "reason": "manual"}
    assert [(method, path, body) for method, path, _, body in stranger.asked] == [
        ("GET", "/v1/templates", None),
        ("DELETE", "/v1/templates/a%20b", None),
        ("POST", "/v1/bundles", members),
    ]


def test_nobody_is_there(run: Run, ids: list[str]) -> None:
    done = run(*TEMPLATES, "http://127.0.0.1:9")
    assert done.code == 1
    assert "the server at http://127.0.0.1:9 cannot be reached: " in done.err
    assert "hint: start it with `holdfast serve`" in done.err
    done = run(*BUNDLE, "http://127.0.0.1:9")
    assert done.code == 1
    assert "error: http://127.0.0.1:9 does not answer: " in done.err


@pytest.mark.parametrize(("command", "code"), [(TEMPLATES, 11), (BUNDLE, 2)])
def test_what_is_no_address(run: Run, ids: list[str], command: tuple[str, ...], code: int) -> None:
    for address in ("ftp://x", "http://x:port", "http://x:70000", "http://a b", "http://[::1"):
        done = run(*command, address)
        assert done.code == code
        assert f"not a server's address: {address!r}" in done.err
        assert "hint: e.g. http://127.0.0.1:8787" in done.err


@pytest.mark.parametrize("command", [TEMPLATES, BUNDLE])
def test_a_refusal_in_words_of_its_own(
    run: Run, ids: list[str], stranger: Stranger, command: tuple[str, ...]
) -> None:
    for body in (b"<h1>Bad Gateway</h1>", b"[1]", b'{"error": "no"}'):
        stranger.answers(502, body)
        done = run(*command, stranger.url)
        assert done.code == 1
        assert "502" in done.err
        assert "unexpected" not in done.err


@pytest.mark.parametrize("command", [TEMPLATES, BUNDLE])
def test_what_answers_is_something_else(
    run: Run, ids: list[str], stranger: Stranger, command: tuple[str, ...]
) -> None:
    stranger.answers(200, b"<h1>Welcome</h1>")
    done = run(*command, stranger.url)
    assert done.code == 1
    assert "is no server of Holdfast\nhint: " in done.err
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = threading.Thread(target=_speak, args=(listener, b"SSH-2.0-OpenSSH\r\n"))
        told.start()
        done = run(*command, f"http://127.0.0.1:{listener.getsockname()[1]}")
        told.join()
    assert done.code == 1
    assert "BadStatusLine" in done.err
    assert "unexpected" not in done.err


def _speak(listener: socket.socket, line: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            """Until the other side has heard it: a reset could come before."""


@pytest.mark.parametrize("command", [TEMPLATES, BUNDLE])
def test_a_token_that_cannot_be_sent_is_not_shown(
    run: Run,
    ids: list[str],
    stranger: Stranger,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for token in ("hush\n", "hush \u2026"):
        monkeypatch.setenv("HOLDFAST_TOKEN", token)
        done = run(*command, stranger.url)
        assert done.code == 11
        assert "hush" not in done.err
    assert stranger.asked == []
    monkeypatch.setenv("HOLDFAST_TOKEN", "hüsh")  # a server takes it
    stranger.answers(404, error("not_found"))
    assert run(*command, stranger.url).code == 3
    assert stranger.asked[0][2] == "Bearer hüsh"
