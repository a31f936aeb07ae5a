"""What statuses mean to a client: what ends a connection, what answers a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.protocol.sandbox_messages import Status

# After these a connection is not looked for again; RUNNING arms it anew.
DISARMING = frozenset(
    {
        Status.ERROR,
        Status.NOT_FOUND,
        Status.CREATION_ERROR,
        Status.CHECKPOINT_ERROR,
        Status.RESTORE_ERROR,
        Status.DELETED,
        Status.LOCK_RENEWAL_ERROR,
        Status.PERMISSION_DENIAL_ERROR,
    }
)
# What an execution's beginning ends in when it fails, and what other work does.
REFUSED = frozenset({Status.EXECUTION_ERROR, Status.EXECUTION_UNSUPPORTED_LANGUAGE_ERROR})
FAILED = frozenset(
    {
        Status.CREATION_ERROR,
        Status.RESTORE_ERROR,
        Status.PERMISSION_DENIAL_ERROR,
        Status.CHECKPOINT_ERROR,
        Status.EXECUTION_IN_PROGRESS_ERROR,
        Status.KILL_ERROR,
        Status.FILESYSTEM_SNAPSHOT_ERROR,
        Status.ERROR,
        Status.LOCK_RENEWAL_ERROR,
    }
)
# Failures after which the server hangs up.
FATAL = frozenset({Status.ERROR, Status.LOCK_RENEWAL_ERROR, Status.CHECKPOINT_ERROR})
ON_THE_WAY = frozenset({Status.RESTORING, Status.LOCK_ACQUIRING, Status.LOCK_ACQUIRED})


def status_of(message: Mapping[str, Any]) -> Status | None:
    try:
        return Status(str(message.get("status", "")))
    except ValueError:
        return None
