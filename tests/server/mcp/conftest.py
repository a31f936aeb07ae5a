"""`holdfast mcp` as its clients meet it: the installed program, driven by the official client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

HOLDFAST = Path(sys.executable).with_name("holdfast")
Connect = Callable[..., AbstractAsyncContextManager[Client]]


def told(result: Any) -> dict[str, Any]:
    """What a tool answered; the client has checked it against the tool's schema."""
    assert not result.is_error, result.content[0].text
    found: dict[str, Any] = result.structured_content
    return found


def refused(result: Any) -> dict[str, Any]:
    """What a tool said of its failure."""
    assert result.is_error
    error: dict[str, Any] = result.meta["holdfast/error"]
    assert result.content[0].text.startswith(f"{error['kind']}: {error['message']}")
    return error


def environ(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith("HOLDFAST_")}
    return {**kept, **more}


@dataclass(frozen=True, slots=True)
class Http:
    """A server over HTTP, and how to speak to it."""

    process: subprocess.Popen[str]
    url: str
    token: str
    workspace: Path
    home: Path

    @asynccontextmanager
    async def connect(self, mode: str = "auto") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as link:
            transport = streamable_http_client(self.url, http_client=link)
            async with Client(transport, mode=mode, read_timeout_seconds=60) as client:
                yield client


@contextmanager
def serving(folder: Path, *options: str, **more: str) -> Iterator[Http]:
    """`holdfast mcp --http` with a home and a workspace in this folder, until the end."""
    home, workspace = folder / "home", folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [HOLDFAST, "mcp", "--http", "--port", "0", "--workspace", str(workspace), *options],
        env={**os.environ, "HOLDFAST_HOME": str(home), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        url, token = (process.stdout.readline().split()[-1] for _ in range(2))
        yield Http(process, url, token, workspace, home)
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    """One server for all the tests of a module; each works on a subject of its own."""
    with serving(tmp_path_factory.mktemp("http")) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def stdio(workspace: Path) -> Connect:
    """A new server on the test's own home, and a client of it."""

    @asynccontextmanager
    async def connect(*options: str, mode: str = "auto", **more: str) -> AsyncIterator[Client]:
        parameters = StdioServerParameters(
            command=str(HOLDFAST),
            args=["mcp", *options],
            cwd=workspace,
            env=environ(**more),
        )
        async with Client(parameters, mode=mode, read_timeout_seconds=60) as client:
            yield client

    return connect
