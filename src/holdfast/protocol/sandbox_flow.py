"""What a client is told, and when: the flows of spec/sandbox-v1.md as one table.

A driver says what happened (a `Fact`); the conversation answers with the frames to send, in the
only order that clients understand, and refuses facts that cannot happen at that point.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum, auto

import msgspec

from holdfast.model.errors import HoldfastError
from holdfast.protocol.sandbox_messages import ErrorEvent, SandboxIdEvent, Status, StatusUpdate

NORMAL, FAULT, FAILED = 1000, 1011, 4000  # close codes


class Phase(StrEnum):
    """Where a conversation stands."""

    NEW = auto()
    CREATING = auto()
    RESTORING = auto()
    OPEN = auto()
    KILLING = auto()
    CHECKPOINTING = auto()
    LEAVING = auto()  # the sandbox is being taken away from this client
    CLOSED = auto()


class Fact(StrEnum):
    """Something that happened to a sandbox, as its client will be told."""

    CREATE_BEGUN = auto()
    LOCK_SOUGHT = auto()
    LOCK_TAKEN = auto()
    CREATED = auto()
    CREATE_FAILED = auto()
    ATTACHED = auto()
    RESTORE_BEGUN = auto()
    RESTORED = auto()
    RESTORE_FAILED = auto()
    NOT_FOUND = auto()
    IN_USE = auto()
    DENIED = auto()
    EXECUTION_BEGUN = auto()
    EXECUTION_ENDED = auto()
    EXECUTION_REFUSED = auto()
    LANGUAGE_UNKNOWN = auto()
    STDIN_REFUSED = auto()
    PROCESS_KILLED = auto()
    PROCESS_KILL_FAILED = auto()
    KILL_BEGUN = auto()
    KILLED = auto()
    KILL_FAILED = auto()
    CHECKPOINT_BEGUN = auto()
    CHECKPOINT_REFUSED = auto()
    CHECKPOINT_FAILED = auto()
    CHECKPOINTED = auto()
    CHECKPOINTED_RUNNING = auto()
    SNAPSHOT_BEGUN = auto()
    SNAPSHOT_DONE = auto()
    SNAPSHOT_FAILED = auto()
    RECONNECTED = auto()
    IDLE = auto()
    HANDOVER_ASKED = auto()
    LEASE_LOST = auto()
    DELETE_BEGUN = auto()
    LOCK_RELEASE_BEGUN = auto()
    LOCK_RELEASED = auto()
    DELETED = auto()
    ENDED = auto()
    FAULT = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """When a fact may come, what it makes the client hear, and where that leads."""

    during: frozenset[Phase]
    says: tuple[Status, ...]
    then: Phase | None = None  # None: where it was
    close: int | None = None


def _at(*phases: Phase) -> frozenset[Phase]:
    return frozenset(phases)


_NEW = _at(Phase.NEW)
_OPEN = _at(Phase.OPEN)
_CHECKPOINTING = _at(Phase.CHECKPOINTING)
_GOING = _at(Phase.KILLING, Phase.CHECKPOINTING, Phase.LEAVING)
_ALIVE = frozenset(Phase) - {Phase.CLOSED}
_LOCKING = _at(Phase.CREATING, Phase.RESTORING)

TABLE: dict[Fact, Step] = {
    Fact.CREATE_BEGUN: Step(_NEW, (Status.CREATING,), Phase.CREATING),
    Fact.LOCK_SOUGHT: Step(_LOCKING, (Status.LOCK_ACQUIRING,)),
    Fact.LOCK_TAKEN: Step(_LOCKING, (Status.LOCK_ACQUIRED,)),
    Fact.CREATED: Step(_at(Phase.CREATING), (Status.RUNNING,), Phase.OPEN),
    Fact.CREATE_FAILED: Step(
        _at(Phase.CREATING), (Status.CREATION_ERROR,), Phase.CLOSED, close=FAILED
    ),
    Fact.ATTACHED: Step(_NEW, (Status.RUNNING,), Phase.OPEN),
    Fact.RESTORE_BEGUN: Step(_NEW, (Status.RESTORING,), Phase.RESTORING),
    Fact.RESTORED: Step(_at(Phase.RESTORING), (Status.RUNNING,), Phase.OPEN),
    Fact.RESTORE_FAILED: Step(
        _at(Phase.NEW, Phase.RESTORING), (Status.RESTORE_ERROR,), Phase.CLOSED, close=FAILED
    ),
    Fact.NOT_FOUND: Step(
        _at(Phase.NEW, Phase.RESTORING), (Status.NOT_FOUND,), Phase.CLOSED, close=FAULT
    ),
    Fact.IN_USE: Step(_at(Phase.NEW, Phase.RESTORING), (Status.IN_USE,), Phase.CLOSED, close=FAULT),
    Fact.DENIED: Step(_NEW, (Status.PERMISSION_DENIAL_ERROR,), Phase.CLOSED, close=FAILED),
    Fact.EXECUTION_BEGUN: Step(_OPEN, (Status.EXECUTION_RUNNING,)),
    # Also while it is being taken away: a handover kills what runs, and says so.
    Fact.EXECUTION_ENDED: Step(_ALIVE, (Status.EXECUTION_DONE,)),
    Fact.EXECUTION_REFUSED: Step(_OPEN, (Status.EXECUTION_ERROR,)),
    Fact.LANGUAGE_UNKNOWN: Step(_OPEN, (Status.EXECUTION_UNSUPPORTED_LANGUAGE_ERROR,)),
    Fact.STDIN_REFUSED: Step(_OPEN, (Status.STDIN_ERROR,)),
    Fact.PROCESS_KILLED: Step(_ALIVE, (Status.EXECUTION_FORCE_KILLED,)),
    Fact.PROCESS_KILL_FAILED: Step(_OPEN, (Status.EXECUTION_FORCE_KILL_ERROR,)),
    Fact.KILL_BEGUN: Step(_OPEN, (Status.KILLING,), Phase.KILLING),
    Fact.KILLED: Step(_at(Phase.KILLING), (Status.KILLED,), Phase.CLOSED, close=NORMAL),
    Fact.KILL_FAILED: Step(_at(Phase.KILLING), (Status.KILL_ERROR,), Phase.CLOSED, close=NORMAL),
    Fact.CHECKPOINT_BEGUN: Step(
        _at(Phase.OPEN, Phase.LEAVING), (Status.CHECKPOINTING,), Phase.CHECKPOINTING
    ),
    Fact.CHECKPOINT_REFUSED: Step(
        _CHECKPOINTING, (Status.EXECUTION_IN_PROGRESS_ERROR,), Phase.OPEN
    ),
    Fact.CHECKPOINT_FAILED: Step(
        _CHECKPOINTING, (Status.CHECKPOINT_ERROR,), Phase.CLOSED, close=FAILED
    ),
    Fact.CHECKPOINTED: Step(_CHECKPOINTING, (Status.CHECKPOINTED,), Phase.CLOSED, close=NORMAL),
    Fact.CHECKPOINTED_RUNNING: Step(_CHECKPOINTING, (Status.CHECKPOINTED,), Phase.OPEN),
    Fact.SNAPSHOT_BEGUN: Step(_OPEN, (Status.FILESYSTEM_SNAPSHOT_CREATING,)),
    Fact.SNAPSHOT_DONE: Step(_OPEN, (Status.FILESYSTEM_SNAPSHOT_CREATED,)),
    Fact.SNAPSHOT_FAILED: Step(_OPEN, (Status.FILESYSTEM_SNAPSHOT_ERROR,)),
    Fact.RECONNECTED: Step(_OPEN, (Status.RUNNING,)),
    Fact.IDLE: Step(_OPEN, (), Phase.LEAVING),
    Fact.HANDOVER_ASKED: Step(_OPEN, (Status.LOCK_RELEASE_REQUESTED,), Phase.LEAVING),
    Fact.LEASE_LOST: Step(_ALIVE, (Status.LOCK_RENEWAL_ERROR,), Phase.LEAVING),
    Fact.DELETE_BEGUN: Step(_GOING, (Status.DELETING,)),
    Fact.LOCK_RELEASE_BEGUN: Step(_GOING, (Status.LOCK_RELEASING,)),
    Fact.LOCK_RELEASED: Step(_GOING, (Status.LOCK_RELEASED,)),
    Fact.DELETED: Step(_GOING, (Status.DELETED,)),
    Fact.ENDED: Step(_at(Phase.LEAVING), (), Phase.CLOSED, close=NORMAL),
    Fact.FAULT: Step(_ALIVE, (Status.ERROR,), Phase.CLOSED, close=FAILED),
}

# What a person reads while it happens; a driver may say something better.
MESSAGES: dict[Status, str] = {
    Status.CREATING: "Creating the sandbox",
    Status.CREATION_ERROR: "The sandbox could not be created",
    Status.RUNNING: "The sandbox is running",
    Status.RESTORING: "Restoring the sandbox from its checkpoint",
    Status.RESTORE_ERROR: "The sandbox could not be restored; its checkpoint is kept",
    Status.NOT_FOUND: "There is no such sandbox",
    Status.IN_USE: "Another client is attached to this sandbox",
    Status.PERMISSION_DENIAL_ERROR: "The sandbox token is wrong",
    Status.ERROR: "The server failed",
    Status.EXECUTION_RUNNING: "Running",
    Status.EXECUTION_DONE: "Done",
    Status.EXECUTION_ERROR: "The execution could not run",
    Status.EXECUTION_UNSUPPORTED_LANGUAGE_ERROR: "This language is not supported",
    Status.EXECUTION_IN_PROGRESS_ERROR: "No checkpoint: an execution is running",
    Status.EXECUTION_FORCE_KILLED: "The execution was killed",
    Status.EXECUTION_FORCE_KILL_ERROR: "The execution could not be killed",
    Status.STDIN_ERROR: "The input could not be used",
    Status.CHECKPOINTING: "Taking a checkpoint",
    Status.CHECKPOINTED: "The checkpoint is durable",
    Status.CHECKPOINT_ERROR: "No checkpoint was taken; the sandbox goes on as it was",
    Status.FILESYSTEM_SNAPSHOT_CREATING: "Keeping the files",
    Status.FILESYSTEM_SNAPSHOT_CREATED: "The files are kept",
    Status.FILESYSTEM_SNAPSHOT_ERROR: "The files could not be kept",
    Status.KILLING: "Ending the sandbox",
    Status.KILLED: "The sandbox has ended",
    Status.KILL_ERROR: "The sandbox could not be ended",
    Status.DELETING: "Clearing the sandbox away",
    Status.DELETED: "The sandbox is cleared away",
    Status.LOCK_ACQUIRING: "Asking to own the sandbox",
    Status.LOCK_ACQUIRED: "This server owns the sandbox",
    Status.LOCK_RELEASE_REQUESTED: "Another server asks for this sandbox",
    Status.LOCK_RELEASING: "Giving the sandbox up",
    Status.LOCK_RELEASED: "The sandbox is free for others",
    Status.LOCK_RENEWAL_ERROR: "This server no longer owns the sandbox",
}


class OutOfOrder(Exception):
    """A driver told a fact that cannot happen now: a defect of ours, never a client's."""


@dataclass(slots=True)
class Conversation:
    """What one client has been told so far, and so what may be said next."""

    phase: Phase = Phase.NEW
    executing: bool = False
    close: int | None = None  # how to close, once everything was sent
    _before: Phase = field(default=Phase.NEW, repr=False)

    def tell(
        self,
        fact: Fact,
        message: str | None = None,
        *,
        error: HoldfastError | None = None,
        identity: SandboxIdEvent | None = None,
        request_id: str | None = None,
    ) -> list[bytes]:
        """The frames for a fact. Raises OutOfOrder."""
        step = TABLE[fact]
        if self.phase not in step.during:
            raise OutOfOrder(f"{fact} while {self.phase}")
        if not self._executes(fact):
            return []
        frames = [encode(identity)] if identity is not None else []
        frames += [encode(_update(status, message)) for status in step.says]
        if error is not None:
            frames.append(encode(error_event(error, request_id)))
        self.phase = step.then or self.phase
        self.close = step.close
        return frames

    def may(self, fact: Fact) -> bool:
        """Whether a fact can be told now."""
        return self.phase in TABLE[fact].during

    def _executes(self, fact: Fact) -> bool:
        """Follow the foreground execution; False when the client must not hear of it: a stray
        DONE would end its next execution."""
        if fact is Fact.EXECUTION_BEGUN:
            self.executing = True
        elif fact is Fact.EXECUTION_ENDED:
            if not self.executing:
                return False
            self.executing = False
        return True


def error_event(error: HoldfastError, request_id: str | None = None) -> ErrorEvent:
    return ErrorEvent(
        event="error",
        message=str(error),
        kind=error.kind,
        hint=error.hint,
        request_id=request_id,
    )


def encode(message: msgspec.Struct) -> bytes:
    """A message as the text of one WebSocket frame."""
    return msgspec.json.encode(message)


def _update(status: Status, message: str | None) -> StatusUpdate:
    text = MESSAGES[status] if message is None else message
    return StatusUpdate(event="status_update", status=status, message=text)
