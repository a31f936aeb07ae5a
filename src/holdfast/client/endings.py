"""How a sandbox comes to its end for a client: which status announces it, and whose doing it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from holdfast.model.errors import Conflict, HoldfastError
from holdfast.protocol.sandbox_messages import Status

State = Literal["running", "checkpointed", "killed", "deleted", "lost", "detached"]


@dataclass(frozen=True, slots=True)
class Ending:
    """The state that an end leads to, what brought it about, and what to do."""

    state: State
    why: str
    hint: str

    def error(self, what: str = "the output ends here") -> HoldfastError:
        return Conflict(f"{what}: {self.why}", hint=self.hint)


DETACHED = Ending("detached", "this client has left the sandbox", "attach to go on with it")
_IDLE = "nothing was heard for the sandbox's idle time, so the server"
_LONGER = "a longer idle_timeout keeps it longer"

# The first of these that is heard says it, unless the client has asked for what happens.
_ANNOUNCED = {
    Status.LOCK_RELEASE_REQUESTED: Ending(
        "checkpointed", "the sandbox was handed over to another server", "attach to go on with it"
    ),
    Status.LOCK_RENEWAL_ERROR: Ending(
        "lost", "its server no longer owns the sandbox, another may", "attach to go on with it"
    ),
    Status.CHECKPOINTING: Ending(
        "checkpointed", f"{_IDLE} checkpointed it", f"attach to go on; {_LONGER}"
    ),
    Status.CHECKPOINT_ERROR: Ending(
        "lost",
        "the server hung up after a checkpoint that failed",
        "the sandbox is as it was: attach to go on with it",
    ),
    Status.KILLING: Ending("killed", "the sandbox was killed", "create another one"),
    Status.DELETING: Ending("deleted", f"{_IDLE} ended it", f"create another one; {_LONGER}"),
    Status.NOT_FOUND: Ending("lost", "its server knows the sandbox no more", "create another one"),
}
_ASKED = {
    Status.CHECKPOINTED: Ending(
        "checkpointed", "this client had the sandbox checkpointed", "attach to go on with it"
    ),
    Status.KILLED: Ending("killed", "this client killed the sandbox", "create another one"),
}
_CALLED_OFF = frozenset({Status.RUNNING, Status.KILL_ERROR, Status.EXECUTION_IN_PROGRESS_ERROR})
# From here on the sandbox does not run for this client any more.
OVER = frozenset(
    {Status.DELETING, Status.CHECKPOINT_ERROR, Status.LOCK_RENEWAL_ERROR, Status.NOT_FOUND}
)


def announced(before: Ending | None, status: Status, awaited: Status | None) -> Ending | None:
    """The end that is under way after a status, for a client that has asked for what it awaits."""
    if status in _CALLED_OFF:
        return None
    if status is Status.CHECKPOINT_ERROR:
        return _ANNOUNCED[status]
    if before is not None:
        return before
    if awaited in _ASKED and status is Status.DELETING:
        return _ASKED[awaited]
    if awaited in _ASKED and status in (Status.CHECKPOINTING, Status.KILLING):
        return None  # it may still be refused
    return _ANNOUNCED.get(status)
