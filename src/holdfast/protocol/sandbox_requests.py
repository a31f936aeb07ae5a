"""What a client asks for: one frame in, one request or one refusal out."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from holdfast.model.errors import BadInput, HoldfastError, Unsupported
from holdfast.protocol.sandbox_flow import Fact
from holdfast.protocol.sandbox_messages import (
    CheckpointRequest,
    CreateRequest,
    ExecuteRequest,
    FilesRequest,
    ForkRequest,
    KillProcessRequest,
    KillSandboxRequest,
    ReconnectRequest,
    ResizeRequest,
    RollbackRequest,
    SaveTemplateRequest,
    SnapshotRequest,
    StdinEvent,
    WindowRequest,
)

MAX_FRAME = 8 << 20  # of one frame that a client sends
LANGUAGES = ("python", "bash")

Request = (
    CheckpointRequest
    | SnapshotRequest
    | SaveTemplateRequest
    | KillProcessRequest
    | KillSandboxRequest
    | ReconnectRequest
    | ForkRequest
    | RollbackRequest
    | FilesRequest
    | ResizeRequest
    | WindowRequest
    | StdinEvent
    | ExecuteRequest
)

ACTIONS: dict[str, type[Request]] = {
    "checkpoint": CheckpointRequest,
    "snapshot_filesystem": SnapshotRequest,
    "save_template": SaveTemplateRequest,
    "kill_process": KillProcessRequest,
    "kill_sandbox": KillSandboxRequest,
    "reconnect": ReconnectRequest,
    "fork": ForkRequest,
    "rollback": RollbackRequest,
    "files": FilesRequest,
    "resize": ResizeRequest,
    "window": WindowRequest,
}

# A malformed request is answered as the request would have been: by the fact its client waits for.
_REFUSALS: dict[type[Request], Fact] = {
    SnapshotRequest: Fact.SNAPSHOT_FAILED,
    KillProcessRequest: Fact.PROCESS_KILL_FAILED,
    StdinEvent: Fact.STDIN_REFUSED,
    ExecuteRequest: Fact.EXECUTION_REFUSED,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A frame that cannot be acted upon. Without a fact, only an error event answers it."""

    error: HoldfastError
    fact: Fact | None = None
    request_id: str | None = None


def parse_create(frame: str | bytes, idle_timeout: float = 300.0) -> CreateRequest:
    """The first frame on /create; some defaults are the server's. Raises BadInput."""
    try:
        asked = msgspec.convert({"idle_timeout": idle_timeout, **_object(frame)}, CreateRequest)
    except msgspec.ValidationError as error:
        raise BadInput(f"the sandbox cannot be like that: {error}") from None
    wants = asked.enable_sandbox_handoff or asked.enable_idle_timeout_auto_checkpoint
    if wants and not asked.enable_checkpoint:
        raise BadInput(
            "a handoff or an automatic checkpoint needs checkpoints",
            hint="set enable_checkpoint, too",
        )
    return asked


def parse_request(frame: str | bytes) -> Request | Refusal:
    """Any later frame."""
    try:
        fields = _object(frame)
    except BadInput as error:
        return Refusal(error)
    request_id = fields.get("request_id")
    request_id = request_id if isinstance(request_id, str) else None
    wanted: type[Request] = ExecuteRequest
    if fields.get("event") == "stdin":
        wanted = StdinEvent
    elif "action" in fields:
        action = fields["action"]
        found = ACTIONS.get(action) if isinstance(action, str) else None
        if found is None:
            known = ", ".join(ACTIONS)
            return Refusal(BadInput(f"unknown action: {action!r:.100}", hint=f"one of {known}"))
        wanted = found
    try:
        request = msgspec.convert(fields, wanted)
    except msgspec.ValidationError as error:
        told = BadInput(f"the request cannot be used: {error}")
        return Refusal(told, _REFUSALS.get(wanted), request_id)
    return _checked(request, request_id)


def _checked(request: Request, request_id: str | None) -> Request | Refusal:
    """What types cannot say."""
    if isinstance(request, StdinEvent) and request.data is None and not request.eof:
        return Refusal(BadInput("stdin without data"), Fact.STDIN_REFUSED, request_id)
    if not isinstance(request, ExecuteRequest) or request.argv is not None:
        return request
    if request.language is not None and request.language not in LANGUAGES:
        known = Unsupported(
            f"unsupported language: {request.language[:100]!r}",
            hint=f"one of {', '.join(LANGUAGES)}, or a program by `argv`",
        )
        return Refusal(known, Fact.LANGUAGE_UNKNOWN, request_id)
    if request.language is None or request.code is None:
        missing = "language" if request.language is None else "code"
        return Refusal(BadInput(f"no {missing} was given"), Fact.EXECUTION_REFUSED, request_id)
    return request


def _object(frame: str | bytes) -> dict[str, object]:
    if len(frame) > MAX_FRAME:
        raise BadInput(f"a frame of more than {MAX_FRAME} bytes")
    try:
        decoded = msgspec.json.decode(frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInput(f"the frame is not JSON: {error}") from None
    if not isinstance(decoded, dict):
        raise BadInput("a frame is a JSON object")
    return decoded
