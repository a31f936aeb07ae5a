"""Whose doing the end of a sandbox is, by what was heard, as the flows of the protocol have it."""

from __future__ import annotations

import pytest

from holdfast.client.endings import Ending, announced
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
