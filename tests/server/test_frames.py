"""Frames of all kinds at a live server: each is answered, and nothing breaks by any of them."""

from __future__ import annotations

import itertools
import json
import signal
from typing import Any

from hypothesis import assume, given, settings
from tests.frames import first_frames, frames
from tests.server.conftest import ANSWER, Server, Starter
from tests.server.sandbox_client import word_of
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from holdfast.protocol.sandbox_messages import (
    CheckpointRequest,
    ForkRequest,
    KillSandboxRequest,
)
from holdfast.protocol.sandbox_requests import parse_request


class Talk:
    """A connection on which everything that is heard is noted."""

    def __init__(self, server: Server) -> None:
        headers = {"Authorization": f"Bearer {server.token}"}
        url = server.address.replace("http", "ws", 1) + "/create"
        self._connecting = connect(url, additional_headers=headers, max_size=None)
        self.heard: list[dict[str, Any]] = []
        self._numbers = itertools.count()

    def __enter__(self) -> Talk:
        self.socket: ClientConnection = self._connecting.__enter__()
        return self

    def __exit__(self, *how: Any) -> None:
        self._connecting.__exit__(*how)

    def send(self, **message: object) -> None:
        self.socket.send(json.dumps(message))

    def next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.socket.recv(timeout=3 * ANSWER))
        self.heard.append(message)
        return message

    def until(self, word: str) -> None:
        while word_of(self.next()) != word:
            pass

    def rest(self) -> int | None:
        """Everything until the server closes, and how it closed."""
        try:
            while True:
                self.next()
        except ConnectionClosed:
            return self.socket.close_code

    def answered(self) -> None:
        """Whatever was sent has been dealt with: one thing is done after the other."""
        probe = f"probe {next(self._numbers)}"
        self.send(action="files", verb="list", path="/root", request_id=probe)
        while self.next().get("request_id") != probe:
            pass

    @property
    def words(self) -> list[str]:
        return [word_of(each) for each in self.heard]

    @property
    def executing(self) -> bool:
        told = [each for each in self.words if each in ("EXECUTION_RUNNING", "EXECUTION_DONE")]
        return told[-1:] == ["EXECUTION_RUNNING"]


def ends(frame: str | bytes) -> bool:
    """Whether a sandbox ends by it, as it should, or there would be a hundred of them."""
    match parse_request(frame):
        case KillSandboxRequest() | CheckpointRequest(leave_running=False):
            return True
        case ForkRequest(count=count):
            return count > 2
    return False


def test_no_frame_breaks_a_live_connection(start: Starter) -> None:
    server = start("--engine", "process")
    with Talk(server) as talk:
        talk.send(enable_checkpoint=True)
        talk.until("RUNNING")

        @settings(max_examples=100)
        @given(frames)
        def fuzz(frame: str | bytes) -> None:
            assume(not ends(frame))
            talk.socket.send(frame)
            talk.answered()

        fuzz()
        # Whatever still runs, or waits until somebody wants its output, makes room.
        talk.send(action="window", until=1 << 40)
        talk.send(action="kill_process")
        talk.answered()
        while talk.executing:
            talk.next()
        check_well(talk)
    check_log(server)


def test_no_first_frame_breaks_the_server(start: Starter) -> None:
    """Either there is a sandbox, or it is said why not."""
    server = start("--engine", "process")

    @settings(max_examples=25)
    @given(first_frames)
    def fuzz(frame: str | bytes) -> None:
        with Talk(server) as talk:
            talk.socket.send(frame)
            while talk.words[-1:] not in (["RUNNING"], ["error"]):
                talk.next()
            if talk.words[-1] == "RUNNING":
                talk.send(action="kill_sandbox")
                assert talk.rest() == 1000
            else:
                assert talk.rest() == 4000
                assert talk.words == ["CREATING", "CREATION_ERROR", "error"]

    fuzz()
    with Talk(server) as talk:
        talk.send()
        talk.until("RUNNING")
        check_well(talk)
    check_log(server)


def check_well(talk: Talk) -> None:
    """The sandbox works, and the server never failed."""
    begin = len(talk.heard)
    talk.send(language="bash", code="echo fine", cwd="/tmp")
    talk.until("EXECUTION_DONE")
    said = [each["data"] for each in talk.heard[begin:] if each["event"] == "stdout"]
    assert "".join(said) == "fine\n"
    assert "ERROR" not in talk.words
    talk.send(action="kill_sandbox")
    assert talk.rest() == 1000


def check_log(server: Server) -> None:
    code, errors = server.stop(signal.SIGTERM)
    assert code == 0, errors
    assert "Traceback" not in errors, errors
    assert "error:" not in errors, errors
