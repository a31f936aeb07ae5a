"""Whose doing the end of a sandbox is, by what was heard, as the flows of the protocol have it."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.scripted import begun
from websockets.asyncio.server import ServerConnection, serve

from holdfast import Sandbox
from holdfast.client.endings import Ending, announced
from holdfast.model.errors import HoldfastError
from holdfast.protocol.sandbox_messages import Status


def heard(words: str, awaited: Status | None = None) -> Ending | None:
    ending = None
    for word in words.split():
        ending = announced(ending, Status[word], awaited)
    return ending


@pytest.mark.parametrize(
    ("words", "awaited", "state", "why"),
    [
        ("DELETING DELETED", None, "deleted", "idle time"),
        ("CHECKPOINTING EXECUTION_FORCE_KILLED", None, "checkpointed", "idle time"),
        ("LOCK_RELEASE_REQUESTED CHECKPOINTING DELETING", None, "checkpointed", "handed over"),
        ("LOCK_RENEWAL_ERROR DELETING", Status.CHECKPOINTED, "lost", "no longer owns"),
        ("CHECKPOINTING DELETING", Status.CHECKPOINTED, "checkpointed", "this client"),
        ("CHECKPOINTING CHECKPOINT_ERROR", Status.CHECKPOINTED, "lost", "hung up"),
        ("KILLING DELETING", Status.KILLED, "killed", "this client"),
        ("KILLING DELETING", None, "killed", "was killed"),
        ("NOT_FOUND", Status.RUNNING, "lost", "knows"),
    ],
)
def test_an_end(words: str, awaited: Status | None, state: str, why: str) -> None:
    ending = heard(words, awaited)
    assert ending is not None
    assert ending.state == state
    assert why in str(ending.error())


@pytest.mark.parametrize(
    ("words", "awaited"),
    [
        ("CREATING RUNNING EXECUTION_RUNNING EXECUTION_FORCE_KILLED EXECUTION_DONE", None),
        ("CHECKPOINTING EXECUTION_FORCE_KILLED EXECUTION_DONE", Status.CHECKPOINTED),
        ("CHECKPOINTING EXECUTION_IN_PROGRESS_ERROR", Status.CHECKPOINTED),
        ("CHECKPOINTING CHECKPOINTED", Status.CHECKPOINTED),
        ("KILLING KILL_ERROR", None),
    ],
)
def test_no_end(words: str, awaited: Status | None) -> None:
    assert heard(words, awaited) is None


async def test_a_server_that_talks_nonsense_is_given_up() -> None:
    """Whoever waits for what cannot be read is told, and does not wait for ever."""

    async def nonsense(connection: ServerConnection) -> None:
        say = await begun(connection)
        await say(event="stdout", data="no base64 at all!", encoding="base64", offset=3)
        await connection.wait_closed()

    async with serve(nonsense, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sandbox = await Sandbox.create(f"http://127.0.0.1:{port}", token="x")
        async with asyncio.timeout(20):
            process = await sandbox.exec("bash", "true", binary=True)
            with pytest.raises(HoldfastError, match="cannot be understood"):
                await process.stdout.read_all()
            assert (await process.wait()).code is None
            with pytest.raises(HoldfastError):
                await sandbox.exec("bash", "true")
