"""Every flow of the sandbox protocol, as the frames a client sees."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from holdfast.model.errors import Conflict
from holdfast.protocol.sandbox_flow import MESSAGES, TABLE, Conversation, Fact, OutOfOrder, Phase
from holdfast.protocol.sandbox_messages import SandboxIdEvent, Status

F = Fact
ERROR = Conflict("what went wrong")
WITH_ERROR = {
    F.CREATE_FAILED,
    F.DENIED,
    F.RESTORE_FAILED,
    F.EXECUTION_REFUSED,
    F.LANGUAGE_UNKNOWN,
    F.STDIN_REFUSED,
    F.PROCESS_KILL_FAILED,
    F.KILL_FAILED,
    F.CHECKPOINT_REFUSED,
    F.CHECKPOINT_FAILED,
    F.SNAPSHOT_FAILED,
    F.FAULT,
}
IDENTITY = SandboxIdEvent(event="sandbox_id", sandbox_id="i", sandbox_token="t")

# name, facts before, facts, what is heard, how it closes
ROWS: list[tuple[str, str, str, str, int | None]] = [
    ("create", "", "create_begun created", "CREATING sandbox_id RUNNING", None),
    (
        "create with handoff",
        "",
        "create_begun lock_sought lock_taken created",
        "CREATING LOCK_ACQUIRING LOCK_ACQUIRED sandbox_id RUNNING",
        None,
    ),
    ("create fails", "", "create_begun create_failed", "CREATING CREATION_ERROR error", 4000),
    ("attach, live", "", "attached", "RUNNING", None),
    ("attach, restored", "", "restore_begun restored", "RESTORING RUNNING", None),
    (
        "attach, restored with handoff",
        "",
        "restore_begun lock_sought lock_taken restored",
        "RESTORING LOCK_ACQUIRING LOCK_ACQUIRED RUNNING",
        None,
    ),
    ("not found", "", "not_found", "NOT_FOUND", 1011),
    ("in use", "", "in_use", "IN_USE", 1011),
    ("wrong token", "", "denied", "PERMISSION_DENIAL_ERROR error", 4000),
    ("restore fails", "", "restore_failed", "RESTORE_ERROR error", 4000),
    (
        "restore fails late",
        "",
        "restore_begun restore_failed",
        "RESTORING RESTORE_ERROR error",
        4000,
    ),
    (
        "execution",
        "attached",
        "execution_begun execution_ended",
        "EXECUTION_RUNNING EXECUTION_DONE",
        None,
    ),
    (
        "unknown language",
        "attached",
        "language_unknown",
        "EXECUTION_UNSUPPORTED_LANGUAGE_ERROR error",
        None,
    ),
    ("no code", "attached", "execution_refused", "EXECUTION_ERROR error", None),
    (
        "second execution",
        "attached execution_begun",
        "execution_refused execution_ended",
        "EXECUTION_ERROR error EXECUTION_DONE",
        None,
    ),
    ("stdin without data", "attached", "stdin_refused", "STDIN_ERROR error", None),
    (
        "kill_process",
        "attached execution_begun",
        "process_killed execution_ended",
        "EXECUTION_FORCE_KILLED EXECUTION_DONE",
        None,
    ),
    (
        "kill_process, nothing running",
        "attached",
        "process_killed execution_ended",
        "EXECUTION_FORCE_KILLED",
        None,
    ),
    (
        "kill_process fails",
        "attached execution_begun",
        "process_kill_failed",
        "EXECUTION_FORCE_KILL_ERROR error",
        None,
    ),
    (
        "kill_sandbox",
        "attached",
        "kill_begun delete_begun deleted killed",
        "KILLING DELETING DELETED KILLED",
        1000,
    ),
    (
        "kill_sandbox with handoff",
        "attached",
        "kill_begun delete_begun lock_release_begun lock_released deleted killed",
        "KILLING DELETING LOCK_RELEASING LOCK_RELEASED DELETED KILLED",
        1000,
    ),
    ("kill_sandbox fails", "attached", "kill_begun kill_failed", "KILLING KILL_ERROR error", 1000),
    (
        "checkpoint",
        "attached",
        "checkpoint_begun delete_begun deleted checkpointed",
        "CHECKPOINTING DELETING DELETED CHECKPOINTED",
        1000,
    ),
    (
        "checkpoint with handoff",
        "attached",
        "checkpoint_begun delete_begun lock_release_begun lock_released deleted checkpointed",
        "CHECKPOINTING DELETING LOCK_RELEASING LOCK_RELEASED DELETED CHECKPOINTED",
        1000,
    ),
    (
        "checkpoint, leave running",
        "attached",
        "checkpoint_begun checkpointed_running execution_begun",
        "CHECKPOINTING CHECKPOINTED EXECUTION_RUNNING",
        None,
    ),
    (
        "checkpoint during an execution",
        "attached execution_begun",
        "checkpoint_begun checkpoint_refused execution_ended",
        "CHECKPOINTING EXECUTION_IN_PROGRESS_ERROR error EXECUTION_DONE",
        None,
    ),
    (
        "checkpoint fails",
        "attached",
        "checkpoint_begun checkpoint_failed",
        "CHECKPOINTING CHECKPOINT_ERROR error",
        4000,
    ),
    (
        "snapshot",
        "attached",
        "snapshot_begun snapshot_done",
        "FILESYSTEM_SNAPSHOT_CREATING FILESYSTEM_SNAPSHOT_CREATED",
        None,
    ),
    (
        "snapshot fails",
        "attached",
        "snapshot_begun snapshot_failed",
        "FILESYSTEM_SNAPSHOT_CREATING FILESYSTEM_SNAPSHOT_ERROR error",
        None,
    ),
    (
        "reconnect during an execution",
        "attached",
        "reconnected execution_begun execution_ended",
        "RUNNING EXECUTION_RUNNING EXECUTION_DONE",
        None,
    ),
    ("reconnect, nothing running", "attached", "reconnected", "RUNNING", None),
    ("idle", "attached", "idle delete_begun deleted ended", "DELETING DELETED", 1000),
    (
        "idle with a checkpoint",
        "attached",
        "idle checkpoint_begun delete_begun deleted checkpointed",
        "CHECKPOINTING DELETING DELETED CHECKPOINTED",
        1000,
    ),
    (
        "handed over, old owner",
        "attached execution_begun",
        (
            "handover_asked checkpoint_begun process_killed execution_ended delete_begun"
            " lock_release_begun lock_released deleted checkpointed"
        ),
        (
            "LOCK_RELEASE_REQUESTED CHECKPOINTING EXECUTION_FORCE_KILLED EXECUTION_DONE DELETING"
            " LOCK_RELEASING LOCK_RELEASED DELETED CHECKPOINTED"
        ),
        1000,
    ),
    (
        "lease lost",
        "attached",
        "lease_lost delete_begun deleted ended",
        "LOCK_RENEWAL_ERROR DELETING DELETED",
        1000,
    ),
    ("server fault", "attached execution_begun", "fault", "ERROR error", 4000),
]


def facts(text: str) -> list[Fact]:
    return [Fact(word) for word in text.split()]


def tell(conversation: Conversation, fact: Fact) -> list[bytes]:
    return conversation.tell(
        fact,
        error=ERROR if fact in WITH_ERROR else None,
        identity=IDENTITY if fact is Fact.CREATED else None,
    )


def heard(frames: Sequence[bytes]) -> list[str]:
    words = []
    for frame in frames:
        message = msgspec.json.decode(frame)
        status = message.get("status")
        words.append(status.removeprefix("SANDBOX_") if status else message["event"])
    return words


@pytest.mark.parametrize(
    ("before", "told", "expected", "close"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_a_row(before: str, told: str, expected: str, close: int | None) -> None:
    conversation = Conversation()
    for fact in facts(before):
        tell(conversation, fact)
    frames = [frame for fact in facts(told) for frame in tell(conversation, fact)]
    assert heard(frames) == expected.split()
    assert conversation.close == close
    assert (conversation.phase is Phase.CLOSED) == (close is not None)


def test_the_rows_tell_every_fact() -> None:
    assert (
        {fact for row in ROWS for fact in facts(row[1] + " " + row[2])} == set(Fact) == set(TABLE)
    )


def test_every_status_has_a_message_for_the_user() -> None:
    assert set(MESSAGES) == set(Status)
    frame = msgspec.json.decode(Conversation().tell(Fact.ATTACHED)[0])
    assert frame == {
        "event": "status_update",
        "status": "SANDBOX_RUNNING",
        "message": "The sandbox is running",
    }


def test_a_refused_checkpoint_leaves_the_execution_running() -> None:
    conversation = Conversation()
    for fact in facts("attached execution_begun checkpoint_begun checkpoint_refused"):
        tell(conversation, fact)
    assert conversation.phase is Phase.OPEN
    assert conversation.executing


@pytest.mark.parametrize(
    ("before", "wrong"),
    [
        ("", "execution_begun"),
        ("create_begun", "attached"),
        ("attached", "created"),
        ("attached", "checkpointed"),
        ("attached", "deleted"),
        ("not_found", "attached"),
        ("attached kill_begun", "checkpoint_begun"),
        ("restore_begun", "denied"),
    ],
)
def test_facts_out_of_order_are_a_defect(before: str, wrong: str) -> None:
    conversation = Conversation()
    for fact in facts(before):
        tell(conversation, fact)
    with pytest.raises(OutOfOrder):
        tell(conversation, Fact(wrong))
