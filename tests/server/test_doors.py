"""Every way in is in the table of doors, and each asks for what the table says."""

from __future__ import annotations

import ast
import asyncio
import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute
from tests.server.conftest import ANSWER, HOLDFAST, Server, Starter
from tests.server.sandbox_client import Wire

from holdfast.dashboard.site import Site
from holdfast.server.app import create_app
from holdfast.server.doors import OTHERS, SAFE, Access, Door, of_routes, only
from holdfast.store import open_store

ONE, TWO = "token-of-the-first-one", "token-of-the-second-one"
VALUES = {"kind": "state", "name:path": "demo", "name": "demo", "path:path": "", "port:int": "8000"}
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
SOURCE = Path(__file__).resolve().parents[2] / "src/holdfast"
LISTENING = {"bind", "listen", "create_server", "create_unix_server", "start_server"} | {
    "start_unix_server",
    "create_datagram_endpoint",
}
# Calls of these names that open nothing, or only help others to.
NO_LISTENERS = {
    "holdfast.model.files.bind",  # for the sockets of others, which are in the table
    "holdfast.server.consoles.Consoles.console",  # a client hears what a session says
    "holdfast.sandbox.agent.switch.Switch.run",  # it reads what the host says
    "holdfast.cli.bundle._frozen",  # binds subjects, not a socket
    "holdfast.sandbox.interpreter.Host._run",  # it hears whether its client leaves
    "holdfast.cli.serve.command",  # by server.listen.bind, which is in the table
    "holdfast.cli.mcp.command",
}


@dataclass(frozen=True, slots=True)
class Walk:
    """A server with a tenant's sandbox in it, and all its doors."""

    server: Server
    sandbox: tuple[str, str]
    doors: list[Door]

    def address(self, door: Door) -> tuple[str, str]:
        method, _, path = door.way.rpartition(" ")
        values = {"id": self.sandbox[0], **VALUES}
        for name, value in values.items():
            path = path.replace(f"{{{name}}}", value)
        assert "{" not in path, door.way
        return method or "GET", path

    def knock(self, door: Door, **headers: str) -> httpx.Response:
        method, path = self.address(door)
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        if door.kind == "WebSocket":
            given |= UPGRADE
        return httpx.request(method, self.server.address + path, headers=given, timeout=ANSWER)


def table() -> list[Door]:
    with open_store("memory://") as store:
        with_site = of_routes(create_app(store, "word", site=Site(b"", {})).routes)
        without = of_routes(create_app(store, "word").routes)
    return list({(each.kind, each.way): each for each in (*with_site, *without)}.values())


DOORS = table()


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    folder = tmp_path_factory.mktemp("walk")
    tokens = folder / "tokens.toml"
    tokens.write_text(f'[one]\ntoken = "{ONE}"\n[two]\ntoken = "{TWO}"\n')
    with Starter(HOLDFAST_HOME=str(folder), XDG_CONFIG_HOME=str(folder)) as starter:
        server = starter("--engine", "process", "--pool", "0", "--tokens", str(tokens))
        made = asyncio.run(_made(Server(server.process, server.address, ONE)))
        yield Walk(server, made, DOORS)


async def _made(server: Server) -> tuple[str, str]:
    async with Wire(server, "/create") as wire:
        await wire.send(ports=[8000], idle_timeout=600)
        while "sandbox_id" not in (heard := await wire.next()):
            pass
        return heard["sandbox_id"], heard["sandbox_token"]


def is_open(door: Door) -> bool:
    return door.token == Access.ANYONE.token


def for_tenants(door: Door) -> bool:
    return "tenants" in door.who


def changes(door: Door) -> bool:
    return door.kind == "WebSocket" or door.way.partition(" ")[0] not in SAFE


def named(door: Door) -> str:
    return door.way


@pytest.mark.parametrize("door", [each for each in DOORS if not is_open(each)], ids=named)
def test_doors_ask_for_their_token(walk: Walk, door: Door) -> None:
    refused = 403 if door.kind == "WebSocket" else 401
    identity, token = walk.sandbox
    for given in ("wrong", token, identity):
        assert walk.knock(door, Authorization=f"Bearer {given}").status_code == refused, given
    assert walk.knock(door).status_code == refused
    assert walk.knock(door, Holdfast_Sandbox_Token=token).status_code == refused
    assert walk.knock(door, Cookie="holdfast=99999999999." + "0" * 64).status_code == refused
    wrong = walk.knock(door, Sec_WebSocket_Protocol=f"holdfast.token.{token}")
    assert wrong.status_code == refused


@pytest.mark.parametrize("door", [each for each in DOORS if not is_open(each)], ids=named)
def test_tenants_enter_no_owners_door(walk: Walk, door: Door) -> None:
    answer = walk.knock(door, Authorization=f"Bearer {TWO}")
    if not for_tenants(door):
        assert answer.status_code in ((403,) if door.kind == "WebSocket" else (401, 403))
    elif "ports" in door.way or "attach" in door.way:
        assert answer.status_code == 403  # it is the sandbox of another
    else:
        assert answer.status_code in (101, 200)


@pytest.mark.parametrize("door", [each for each in DOORS if changes(each)], ids=named)
def test_doors_refuse_foreign_pages(walk: Walk, door: Door) -> None:
    token = {"Authorization": f"Bearer {walk.server.token}"}
    for origin in ("http://evil.example", "http://127.0.0.1:9", "null"):
        assert walk.knock(door, Origin=origin, **token).status_code == 403, origin
    assert walk.knock(door, Sec_Fetch_Site="cross-site", **token).status_code == 403


@pytest.mark.parametrize("door", [each for each in DOORS if changes(each)], ids=named)
def test_cookies_open_nothing_from_other_ports(walk: Walk, door: Door) -> None:
    with walk.server.client() as client:
        client.post("/login", data={"token": walk.server.token})
        cookie = f"holdfast={client.cookies['holdfast']}"
    elsewhere = {"Origin": "http://127.0.0.1:9", "Sec_Fetch_Site": "same-site"}
    assert walk.knock(door, Cookie=cookie, **elsewhere).status_code == 403


@pytest.mark.parametrize("door", [each for each in DOORS if not changes(each)], ids=named)
def test_no_foreign_page_reads_answers(walk: Walk, door: Door) -> None:
    answer = walk.knock(door, Origin="http://evil.example")
    assert not any(name.startswith("access-control-") for name in answer.headers)
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_nothing_happened_on_the_walk(walk: Walk) -> None:
    """What was refused had no effect: the sandbox lives, and the store is as it was."""
    with walk.server.client(walk.server.token) as client:
        living = [each["id"] for each in client.get("/v1/sandboxes").json()["sandboxes"]]
        assert walk.sandbox[0] in living
        assert client.get("/v1/checkpoints").json() == {"checkpoints": []}
        assert client.get("/v1/sessions").json()["sessions"] == []


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    folder = str(tmp_path_factory.mktemp("unguarded"))
    with Starter(HOLDFAST_HOME=folder, XDG_CONFIG_HOME=folder) as starter:
        server = starter("--auth", "none", "--engine", "process", "--pool", "0")
        yield Walk(server, ("0" * 32, "x"), DOORS)


@pytest.mark.parametrize("door", DOORS, ids=named)
def test_foreign_names_lead_nowhere(unguarded: Walk, door: Door) -> None:
    # As after a name of somebody else's was pointed at this machine.
    for host in ("evil.example", "127.0.0.1.evil.example:8787", ""):
        assert unguarded.knock(door, Host=host).status_code in (400, 403), host
        own = {"Origin": f"http://{host}", "Host": host}
        assert unguarded.knock(door, **own).status_code in (400, 403), host


# -- the table itself


async def _nobody(request: Request) -> Response:
    return Response()


@pytest.mark.parametrize(
    "way",
    [Route("/x", _nobody), Mount("/y", routes=[]), WebSocketRoute("/z", _nobody)],
)
def test_routes_must_state_their_door(way: Route | Mount | WebSocketRoute) -> None:
    with pytest.raises(TypeError, match="says not who may use it"):
        only([way])


def test_routes_are_made_in_one_place() -> None:
    makers = {"Route", "WebSocketRoute", "Mount", "Host", "add_route", "add_websocket_route"}
    web = {_dotted(path) for path in _sources() if "starlette" in path.read_text("utf-8")}
    found = {
        name
        for name, calls in _calls().items()
        if calls & makers and any(name.startswith(f"{module}.") for module in web)
    }
    assert len(web) > 20
    assert found == set()


def test_every_listener_is_in_the_table() -> None:
    found = {name for name, calls in _calls().items() if calls & LISTENING}
    told = {name for door in (*OTHERS, *DOORS) for name in door.opened_by}
    assert found - NO_LISTENERS == told
    assert found >= NO_LISTENERS


def _calls() -> dict[str, set[str]]:
    """The names of what each function of the package calls; the test kit is for tests."""
    found: dict[str, set[str]] = {}

    def look(node: ast.AST, place: str) -> None:
        for child in ast.iter_child_nodes(node):
            inside = place
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = f"{place}.{child.name}"
            if isinstance(child, ast.Call):
                called = child.func
                name = called.attr if isinstance(called, ast.Attribute) else ""
                name = called.id if isinstance(called, ast.Name) else name
                found.setdefault(place, set()).add(name)
            look(child, inside)

    for path in _sources():
        look(ast.parse(path.read_text("utf-8")), _dotted(path))
    return found


def _sources() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path.parts[-2] != "testing"]


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)


@pytest.mark.parametrize("door", OTHERS, ids=named)
def test_doors_name_what_checks_them(door: Door) -> None:
    parts = door.checked_by.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            found = getattr(found, name)
        return
    pytest.fail(f"there is no {door.checked_by}")


def test_the_page_of_doors_is_current(repository: Path) -> None:
    script = repository / "scripts/generate-doors"
    done = subprocess.run([sys.executable, script, "--check"], timeout=60)
    assert done.returncode == 0, "scripts/generate-doors makes it again"


# -- tools over HTTP


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = str(tmp_path_factory.mktemp("tools"))
    environ = {"HOLDFAST_HOME": folder, "XDG_CONFIG_HOME": folder, "HOLDFAST_MCP_TOKEN": ONE}
    process = subprocess.Popen(
        [HOLDFAST, "mcp", "--http", "--port", "0", "--workspace", folder],
        env={**dict(_environ()), **environ},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def _environ() -> Iterator[tuple[str, str]]:
    import os

    yield from os.environ.items()


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "OPTIONS"])
def test_tools_ask_as_other_doors(tools: str, method: str) -> None:
    def knock(**headers: str) -> int:
        return httpx.request(method, tools, headers=headers, timeout=ANSWER).status_code

    token = f"Bearer {ONE}"
    assert knock() == 401
    assert knock(Authorization="Bearer wrong") == 401
    assert knock(Authorization=f"Bearer {TWO}") == 401
    assert knock(Authorization=token, Origin="http://evil.example") == 403
    assert knock(Authorization=token, Origin="http://127.0.0.1:9") == 403
    assert knock(Authorization=token, Host="evil.example") in (403, 421)
