"""`holdfast serve` as a process: starting, the token, the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import httpx
import pytest
from tests.cli.person import Person
from tests.server.conftest import ANSWER, HOLDFAST, PATIENCE, Server, Starter, add
from tests.server.sandbox_client import created

from holdfast import __version__
from holdfast.store import Store
from holdfast.testing.processes import running


def test_status_is_open(start: Starter) -> None:
    server = start()
    answer = httpx.get(f"{server.address}/status", timeout=ANSWER)
    assert answer.status_code == 200
    told = {"status": "ok", "version": __version__, "engine": "gvisor", "boundary": True}
    assert answer.json() == told


def test_status_counts_for_those_who_may_come_in(start: Starter, store: Store) -> None:
    add(store, "state/one")
    add(store, "state/one")
    server = start()
    with server.client(server.token) as client:
        known = client.get("/status").json()
    assert (known["subjects"], known["checkpoints"]) == (1, 2)
    with server.client("wrong") as client:
        assert client.get("/status").json().keys() == {"status", "version", "engine", "boundary"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_asked(start: Starter, number: int) -> None:
    server = start()
    assert httpx.get(f"{server.address}/status", timeout=ANSWER).status_code == 200
    code, errors = server.stop(number)
    assert (code, errors) == (0, "stopped\n")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.address}/status")


@pytest.mark.parametrize("given", ["", "a-token-of-ones-own"])
def test_who_is_watching_is_told_how_to_keep_the_token(
    given: str, holdfast_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", given)
    person = Person("serve", "--port", "0", "--engine", "process")
    try:
        person.sees(r"\r\ntoken: [\w-]+\r\n")
        person.child.sendintr()
        said = person.sees("stopped\r\n")
    finally:
        person.leaves()
    assert ("set HOLDFAST_TOKEN to keep it" in said) == (not given)


def _connect(address: str) -> socket.socket:
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def _begin_a_login(connection: socket.socket) -> None:
    """Send a part of a request, and wait until it is being answered: that it goes on is said."""
    head = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    connection.sendall(head)
    assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
    connection.sendall(b"tok")


def test_a_request_under_way_may_finish(start: Starter) -> None:
    server = start()
    with _connect(server.address) as connection:
        _begin_a_login(connection)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert server.process.poll() is None
        connection.sendall(b"en=abc")
        assert connection.recv(1000).startswith(b"HTTP/1.1 401 ")
    assert server.process.wait(PATIENCE) == 0


def test_a_visitor_who_stays_silent_does_not_keep_it_up(start: Starter) -> None:
    server = start()
    with _connect(server.address):
        code, _ = server.stop(signal.SIGTERM)
    assert code == 0


def test_a_request_that_goes_on_for_too_long_is_cut_off_in_words(start: Starter) -> None:
    server = start()
    with _connect(server.address) as connection:
        _begin_a_login(connection)
        code, errors = server.stop(signal.SIGTERM)
        answer = connection.recv(10_000)  # none, had it been cut off as one that never arrives
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"the server is stopping" in answer
    assert code == 0
    assert "Traceback" not in errors
    assert errors.endswith("stopped\n")


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"GET /status HTT",
        b"GET /status HTTP/1.1\r\nHost: x\r\n",
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\ntok",
        b"GET /status HTTP/1.1\r\nHost: x\r\n\r\nGET /sta",
    ],
)
def test_a_request_that_never_arrives_whole_does_not_stay_open(half: bytes) -> None:
    code = (
        "import sys\nfrom holdfast.cli.main import main\nfrom holdfast.server import listen\n"
        "listen.REQUEST_SECONDS, listen.IDLE_SECONDS = 0.5, 1\n"
        "sys.exit(main(['serve', '--port', '0']))"
    )
    with running(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        with _connect(address) as connection, contextlib.suppress(ConnectionResetError):
            connection.sendall(half)
            while connection.recv(10_000):  # raises TimeoutError when it stays open
                pass
        with _connect(address) as connection:
            # In one go: who connects and takes half a second to ask is cut off as well.
            host = address.removeprefix("http://")
            connection.sendall(f"GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert errors == "stopped\n"


async def test_a_silent_websocket_stays_open(holdfast_home: Path) -> None:
    """The time for a request to arrive must not end what grew out of one."""
    code = (
        "import sys\nfrom holdfast.cli.main import main\nfrom holdfast.server import listen\n"
        "listen.REQUEST_SECONDS = 2\n"  # within which whoever connects here has asked
        "sys.exit(main(['serve', '--port', '0', '--engine', 'process', '--auth', 'none']))"
    )
    with running([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        server = Server(process, process.stdout.readline().split()[-1], None)
        wire = await created(server)
        await asyncio.sleep(3)
        assert await wire.run("bash", "echo still here") == "still here\n"
        await wire.send(action="kill_sandbox")
        await wire.rest()
        process.terminate()


def test_a_head_without_end_is_refused(start: Starter) -> None:
    server = start()
    with _connect(server.address) as connection:
        connection.sendall(b"GET /status HTTP/1.1\r\nX: " + b"x" * 40_000)
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from holdfast.cli.main import main; sys.exit(main(['serve']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 5
    assert done.stderr == (
        "error: the server needs uvicorn\nhint: pip install 'holdfast[server]'\n"
    )


def test_each_server_makes_its_own_token(start: Starter) -> None:
    one, two = start(), start()
    assert one.token is not None
    assert len(one.token) >= 43
    assert one.token != two.token


def test_the_token_can_be_given(start: Starter) -> None:
    server = start(HOLDFAST_TOKEN="a token of mine")
    assert server.token == "a token of mine"
    with server.client("a token of mine") as client:
        assert client.get("/v1/subjects").status_code == 200


def test_a_token_that_may_be_guessed_is_noted(start: Starter) -> None:
    server = start("--engine", "process", HOLDFAST_TOKEN="short")
    _, errors = server.stop(signal.SIGTERM)
    assert "HOLDFAST_TOKEN has less than 16 characters" in errors
    assert "openssl rand -hex 32" in errors


def test_a_token_that_cannot_be_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", "tök€n")
    done = run("--engine", "process")
    assert (done.returncode, "no header can carry" in done.stderr) == (11, True)
    assert "tök" not in done.stderr


def test_it_sees_what_others_write(start: Starter, store: Store) -> None:
    server = start()
    with server.client(server.token) as client:
        assert client.get("/v1/subjects").json() == {"subjects": []}
        add(store, "state/late")
        assert client.get("/v1/subjects").json()["subjects"][0]["subject"] == "state/late"


def run(*options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HOLDFAST, "serve", *options],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--port", str(port))
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: port {port} on 127.0.0.1 is in use\nhint: ")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--host", "no.such.host.invalid"], 11, "no such host"),
        (["--host", "192.0.2.1"], 11, "not an address of this machine"),
        (["--port", "70000"], 2, "'--port': '70000' is not a port"),
        (["--port", "abc"], 2, "'--port': 'abc' is not a port"),
        (["--engine", "vm"], 2, "vm"),
        (["--auth", "none", "--host", "0.0.0.0"], 2, "--auth none is for loopback"),
        (["--image", "x"], 2, "NAME=PATH"),
        (["--advertise", "server-1"], 11, "http://server-1:8787"),
        (["--pool", "-1"], 11, "0 or more"),
        (["--sandbox-memory", "1kB"], 11, "512MiB"),
        (["--idle-timeout", "soon"], 11, "above 0"),
    ],
)
def test_what_cannot_be_is_told(options: list[str], code: int, message: str) -> None:
    done = run(*options)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "token:" not in done.stdout


def test_an_engine_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_RUNC", "/no/such/runc")
    done = run("--engine", "runc")
    assert done.returncode == 5
    assert "there is no runc on this machine" in done.stderr


def test_without_gvisor_no_hostile_code_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_RUNSC", "/no/such/runsc")
    done = run("--engine", "gvisor")
    assert (done.returncode, done.stdout) == (5, "")
    assert "there is no runsc on this machine" in done.stderr


def test_an_engine_without_a_boundary_says_so(start: Starter, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text('[one]\ntoken = "token-of-the-first-one"\n')
    lacking = start("--engine", "process", HOLDFAST_RUNSC="/no/such/runsc")
    shared = start("--engine", "process", "--tokens", str(tokens))
    with lacking.client() as client:
        assert client.get("/status").json()["boundary"] is False
    _, errors = lacking.stop(signal.SIGTERM)
    assert "gVisor, which is one, cannot run here: there is no runsc on this machine" in errors
    _, errors = shared.stop(signal.SIGTERM)
    assert "give tokens only to people who trust each other" in errors
    assert "can run here: --engine gvisor" in errors


def test_without_a_token_on_loopback_only(start: Starter) -> None:
    server = start("--auth", "none")
    with server.client() as client:
        assert client.get("/v1/subjects").status_code == 200
        # A name elsewhere that was made to point at this machine.
        answer = client.get("/v1/subjects", headers={"Host": "evil.example"})
        assert answer.status_code == 403
        assert answer.json()["error"]["kind"] == "denied"
        assert client.get("/v1/subjects", headers={"Host": "[::1]:80"}).status_code == 200
        assert client.get("/status").json()["subjects"] == 0
        for path in ("/", "/nothing"):
            page = client.get(path, headers={"Accept": "text/html"})
            assert "Log out" not in page.text, "nobody has logged in"
    _, errors = server.stop(signal.SIGTERM)
    assert errors.startswith("warning: no token is asked for")


def test_a_new_store_is_made(start: Starter, tmp_path: Path) -> None:
    server = start("--store", str(tmp_path / "new"))
    with server.client(server.token) as client:
        assert client.get("/v1/subjects").json() == {"subjects": []}
    assert (tmp_path / "new").is_dir()


def _until(lines: Iterable[str], last: str) -> Iterator[str]:
    """The lines up to and with the last one, or to the end."""
    for line in lines:
        yield line
        if line == last:
            return


def test_the_start_for_programs() -> None:
    with running(
        [HOLDFAST, "serve", "--port", "0", "--json"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        text = "".join(_until(process.stdout, "}\n"))
        process.terminate()
    assert json.loads(text).keys() == {"address", "token", "store"}
