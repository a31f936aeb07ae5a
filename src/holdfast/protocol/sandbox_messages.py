"""The sandbox's messages. Written by scripts/generate-messages; change the schema instead."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct


class Status(StrEnum):
    """Where a sandbox, or the work on it, stands."""

    CREATING = "SANDBOX_CREATING"
    CREATION_ERROR = "SANDBOX_CREATION_ERROR"
    RUNNING = "SANDBOX_RUNNING"
    RESTORING = "SANDBOX_RESTORING"
    RESTORE_ERROR = "SANDBOX_RESTORE_ERROR"
    NOT_FOUND = "SANDBOX_NOT_FOUND"
    IN_USE = "SANDBOX_IN_USE"
    PERMISSION_DENIAL_ERROR = "SANDBOX_PERMISSION_DENIAL_ERROR"
    ERROR = "SANDBOX_ERROR"
    EXECUTION_RUNNING = "SANDBOX_EXECUTION_RUNNING"
    EXECUTION_DONE = "SANDBOX_EXECUTION_DONE"
    EXECUTION_ERROR = "SANDBOX_EXECUTION_ERROR"
    EXECUTION_UNSUPPORTED_LANGUAGE_ERROR = "SANDBOX_EXECUTION_UNSUPPORTED_LANGUAGE_ERROR"
    EXECUTION_IN_PROGRESS_ERROR = "SANDBOX_EXECUTION_IN_PROGRESS_ERROR"
    EXECUTION_FORCE_KILLED = "SANDBOX_EXECUTION_FORCE_KILLED"
    EXECUTION_FORCE_KILL_ERROR = "SANDBOX_EXECUTION_FORCE_KILL_ERROR"
    STDIN_ERROR = "SANDBOX_STDIN_ERROR"
    CHECKPOINTING = "SANDBOX_CHECKPOINTING"
    CHECKPOINTED = "SANDBOX_CHECKPOINTED"
    CHECKPOINT_ERROR = "SANDBOX_CHECKPOINT_ERROR"
    FILESYSTEM_SNAPSHOT_CREATING = "SANDBOX_FILESYSTEM_SNAPSHOT_CREATING"
    FILESYSTEM_SNAPSHOT_CREATED = "SANDBOX_FILESYSTEM_SNAPSHOT_CREATED"
    FILESYSTEM_SNAPSHOT_ERROR = "SANDBOX_FILESYSTEM_SNAPSHOT_ERROR"
    KILLING = "SANDBOX_KILLING"
    KILLED = "SANDBOX_KILLED"
    KILL_ERROR = "SANDBOX_KILL_ERROR"
    DELETING = "SANDBOX_DELETING"
    DELETED = "SANDBOX_DELETED"
    LOCK_ACQUIRING = "SANDBOX_LOCK_ACQUIRING"
    LOCK_ACQUIRED = "SANDBOX_LOCK_ACQUIRED"
    LOCK_RELEASE_REQUESTED = "SANDBOX_LOCK_RELEASE_REQUESTED"
    LOCK_RELEASING = "SANDBOX_LOCK_RELEASING"
    LOCK_RELEASED = "SANDBOX_LOCK_RELEASED"
    LOCK_RENEWAL_ERROR = "SANDBOX_LOCK_RENEWAL_ERROR"


# How bytes are written in `data`: as text, or base64 for what is no text.
Encoding = Literal["text", "base64"]


class Limits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a sandbox may use at most. What is left out is the server's default."""

    memory_bytes: Annotated[int, Meta(ge=16777216)] | None = None
    cpus: Annotated[float, Meta(gt=0)] | None = None
    processes: Annotated[int, Meta(ge=4)] | None = None
    disk_bytes: Annotated[int, Meta(ge=1048576)] | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None


class CreateRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first frame on /create: how the sandbox is to be."""

    idle_timeout: Annotated[float, Meta(gt=0)] = 300.0
    enable_checkpoint: bool = False
    enable_idle_timeout_auto_checkpoint: bool = False
    enable_sandbox_handoff: bool = False
    filesystem_snapshot_name: str | None = None
    engine: str | None = None
    name: str | None = None
    image: str | None = None
    limits: Limits | None = None
    network: bool = False
    offline: bool = False
    template: str | None = None
    ports: Annotated[tuple[Annotated[int, Meta(ge=1, le=65535)], ...], Meta(max_length=32)] = ()
    egress: Annotated[tuple[Annotated[str, Meta(max_length=260)], ...], Meta(max_length=256)] = ()


class CheckpointRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Freeze the sandbox."""

    action: Literal["checkpoint"]
    reason: Annotated[str, Meta(max_length=1000)] = "checkpoint"
    leave_running: bool = False
    during_execution: bool = False
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class SnapshotRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Keep the files under a name, for new sandboxes."""

    action: Literal["snapshot_filesystem"]
    name: str
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class SaveTemplateRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Keep the sandbox, with what runs in it, under a name, for new sandboxes."""

    action: Literal["save_template"]
    name: str
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class KillProcessRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Kill the running execution and its process group."""

    action: Literal["kill_process"]
    process_id: Annotated[str, Meta(max_length=200)] | None = None
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class KillSandboxRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """End the sandbox."""

    action: Literal["kill_sandbox"]
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class ReconnectRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Go on where the last connection broke."""

    action: Literal["reconnect"]
    offset: Annotated[int, Meta(ge=0)] | None = None
    offsets: dict[str, Annotated[int, Meta(ge=0)]] = {}
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class ForkRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Make isolated live copies."""

    action: Literal["fork"]
    count: Annotated[int, Meta(ge=1, le=100)] = 1
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class RollbackRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Go back to an earlier checkpoint, keeping the id."""

    action: Literal["rollback"]
    checkpoint: str | None = None
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class FilesRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Look at or change files inside."""

    action: Literal["files"]
    verb: Literal["read", "write", "list", "remove", "mkdir", "rename"]
    path: Annotated[str, Meta(max_length=4096)]
    data: str | None = None
    encoding: Encoding = "text"
    offset: Annotated[int, Meta(ge=0)] | None = None
    size: Annotated[int, Meta(ge=0)] | None = None
    to: Annotated[str, Meta(max_length=4096)] | None = None
    path_encoding: Encoding = "text"
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class ResizeRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The terminal has another size."""

    action: Literal["resize"]
    rows: Annotated[int, Meta(ge=1, le=1000)]
    columns: Annotated[int, Meta(ge=1, le=1000)]
    process_id: Annotated[str, Meta(max_length=200)] | None = None
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class WindowRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the output of a process may be sent."""

    action: Literal["window"]
    until: Annotated[int, Meta(ge=0)]
    process_id: Annotated[str, Meta(max_length=200)] | None = None
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class StdinEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Input for the execution; without data it is the end of input when `eof` says so."""

    event: Literal["stdin"]
    data: str | None = None
    eof: bool = False
    encoding: Encoding = "text"
    process_id: Annotated[str, Meta(max_length=200)] | None = None
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class ExecuteRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Run code, or a program by its arguments."""

    language: str | None = None
    code: str | None = None
    argv: Annotated[tuple[str, ...], Meta(min_length=1, max_length=10000)] | None = None
    env: dict[str, str] = {}
    cwd: Annotated[str, Meta(max_length=4096)] | None = None
    pty: bool = False
    rows: Annotated[int, Meta(ge=1, le=1000)] = 24
    columns: Annotated[int, Meta(ge=1, le=1000)] = 80
    stdin: bool = True
    session: bool = False
    window: Annotated[int, Meta(ge=0)] | None = None
    encoding: Encoding = "text"
    process_id: Annotated[str, Meta(max_length=200)] | None = None
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class StatusUpdate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of a flow; `message` is for the user."""

    event: Literal["status_update"]
    status: Status
    message: str = ""


class SandboxIdEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What it takes to attach."""

    event: Literal["sandbox_id"]
    sandbox_id: str
    sandbox_token: str


class OutputEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a process wrote."""

    event: Literal["stdout", "stderr"]
    data: str
    offset: Annotated[int, Meta(ge=0)] = 0
    gap: Annotated[int, Meta(ge=0)] = 0
    encoding: Encoding = "text"
    process_id: Annotated[str, Meta(max_length=200)] | None = None


class ErrorEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, in words."""

    event: Literal["error"]
    message: str
    kind: str = "fault"
    hint: str | None = None
    process_id: Annotated[str, Meta(max_length=200)] | None = None
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class StartedEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process besides the foreground execution has begun."""

    event: Literal["started"]
    process_id: Annotated[str, Meta(max_length=200)] | None = None
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class ExitEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a process ended: by itself with a code, or by a signal."""

    event: Literal["exit"]
    code: int | None = None
    signal: int | None = None
    reason: str | None = None
    process_id: Annotated[str, Meta(max_length=200)] | None = None


class CheckpointEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A checkpoint is durable."""

    event: Literal["checkpoint"]
    id: str
    short: str
    subject: str
    size_bytes: int
    stored_bytes: int
    pause_ms: float
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class SandboxPass(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sandbox and its token."""

    sandbox_id: str
    sandbox_token: str


class ForkEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The copies run."""

    event: Literal["fork"]
    sandboxes: tuple[SandboxPass, ...]
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class RollbackEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sandbox is as it was."""

    event: Literal["rollback"]
    checkpoint: str
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class SnapshotEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The files are kept under this name."""

    event: Literal["snapshot"]
    name: str
    checkpoint: str
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class TemplateEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New sandboxes can be made from this template."""

    event: Literal["template"]
    name: str
    checkpoint: str
    request_id: Annotated[str, Meta(max_length=200)] | None = None


class FileEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One name in a folder."""

    name: str
    kind: Literal["file", "folder", "link", "other"]
    size: int
    mode: int
    modified: float
    raw: str | None = None


class FilesEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a files request."""

    event: Literal["files"]
    verb: str
    path: str
    data: str | None = None
    encoding: Encoding = "text"
    entries: tuple[FileEntry, ...] | None = None
    size: int | None = None
    modified: float | None = None
    request_id: Annotated[str, Meta(max_length=200)] | None = None
