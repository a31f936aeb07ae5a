"""A real server: the installed program, on a free port of the loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from holdfast.store import Store, open_store

HOLDFAST = Path(sys.executable).with_name("holdfast")
PATIENCE = 60  # seconds for a server to end
ANSWER = 20  # seconds for it to answer; a client of its own accord gives up after 5


@dataclass(slots=True)
class Server:
    """A server that was started, and how to speak to it."""

    process: subprocess.Popen[str]
    address: str
    token: str | None
    home: Path = Path()

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return httpx.Client(base_url=self.address, headers=headers, timeout=ANSWER)

    def stop(self, number: int) -> tuple[int, str]:
        """Send a signal; give the exit code and what was written to stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors


class Starter:
    """Starts servers, and ends them all."""

    def __init__(self, **environ: str) -> None:
        self._environ = {**os.environ, **environ}
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *options: str, **environ: str) -> Server:
        process = subprocess.Popen(
            [HOLDFAST, "serve", "--port", "0", *options],
            env={**self._environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        assert process.stdout is not None
        address = process.stdout.readline().rpartition(" ")[2].strip()
        assert address.startswith("http://"), process.communicate()[1]
        process.stdout.readline()  # the store
        token = None
        if "none" not in options:
            token = process.stdout.readline().removeprefix("token: ").strip()
        return Server(process, address, token, Path({**self._environ, **environ}["HOLDFAST_HOME"]))

    def __enter__(self) -> Starter:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End them all. Whoever does not in time is killed, and then that is an error."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
        late: subprocess.TimeoutExpired | None = None
        for process in self._started:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired as error:
                process.kill()
                process.wait()
                late = error
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                stream.close()
        if late is not None:
            raise late


@pytest.fixture
def start(tmp_path: Path, holdfast_home: Path) -> Iterator[Starter]:
    """Start servers on the test's own home."""
    with Starter(XDG_CONFIG_HOME=str(tmp_path)) as starter:
        yield starter


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server on an empty store, for all the tests of a module that write nothing."""
    folder = str(tmp_path_factory.mktemp("empty"))
    with Starter(HOLDFAST_HOME=folder, XDG_CONFIG_HOME=folder) as starter:
        yield starter()


@pytest.fixture
def store(holdfast_home: Path) -> Iterator[Store]:
    """The default store, which the server serves too."""
    with open_store() as opened:
        yield opened


def add(store: Store, subject: str, reason: str = "manual", content: bytes = b"x") -> str:
    """Commit one checkpoint; its id."""
    with store.draft(subject, reason=reason) as draft:
        draft.put("content", content)
        return draft.commit().id
