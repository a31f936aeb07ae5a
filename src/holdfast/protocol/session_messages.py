"""The session's messages (spec/session-v1.md). New fields get defaults, so old data reads."""

# Annotations are no texts here: msgspec would have to evaluate each of them, a millisecond in all,
# for which a session that comes back waits.

from functools import cache
from typing import Any, Literal

import msgspec

from holdfast.model.errors import Corrupt
from holdfast.protocol.frames import encode_frame

FORMAT = 1  # of a session's checkpoint
HELD = "Held"  # the error of a copy that met what only the worker itself can take

Stream = Literal["stdout", "stderr"]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=str):
    """What all messages have in common: their name in the key `type`."""


class ItemReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one name."""

    name: str
    outcome: Literal["exact", "rebuilt", "placeholder", "skipped"]
    reason: str = ""
    tier: str = ""
    size_bytes: int = 0
    type_name: str = ""
    summary: str = ""
    secrets: tuple[str, ...] = ()  # names of those that were left out of it


class ReadyMessage(Message, frozen=True, kw_only=True):
    """The worker waits for its first request."""

    pid: int
    python: str
    format: int = FORMAT


class ExecuteMessage(Message, frozen=True, kw_only=True):
    """Run this code in the session's namespace."""

    execution_id: int
    code: str
    memory_limit: int | None = None  # bytes that the process may write to while it runs


class OutputMessage(Message, frozen=True, kw_only=True):
    """Text that a running cell wrote."""

    execution_id: int
    stream: Stream
    text: str


class InputMessage(Message, frozen=True, kw_only=True):
    """The running cell called `input()` and waits."""

    request_id: int
    execution_id: int
    prompt: str = ""
    password: bool = False


class InputResponseMessage(Message, frozen=True, kw_only=True):
    """What the client answered; no text means the end of input, or an error."""

    request_id: int
    text: str | None = None
    error: str = ""


class ErrorMessage(Message, frozen=True, kw_only=True):
    """A request failed, or (inside a result) a cell raised."""

    error_type: str
    message: str
    traceback: str = ""
    request_id: int = 0
    hint: str = ""


class ResultMessage(Message, frozen=True, kw_only=True):
    """A cell has ended. `value` is plain data (protocol/values.py), else `text` is a repr."""

    execution_id: int
    execution_count: int
    duration: float
    value: bytes | None = None
    type_name: str = "NoneType"
    text: str = ""
    error: ErrorMessage | None = None


class CheckpointMessage(Message, frozen=True, kw_only=True):
    """Capture the session."""

    request_id: int
    reason: str = "manual"
    stage: str | None = None
    save_to_disk: bool = True
    max_item_bytes: int | None = None
    max_checkpoint_bytes: int | None = None
    beside: bool = False
    timeout: float | None = None
    base: int = 0  # the request that gave the memory of the host's last checkpoint; 0: none
    reads: bool = False  # whether the host can read the memory of a copy of the worker
    ahead: bool = False  # whether memory may come ahead of the capture
    stood: bool = False  # whether the copy that made the last one stood still: none does it now
    keep_secrets: bool | tuple[str, ...] = False  # names, or all
    leave_out: tuple[str, ...] = ()  # names of more secrets


class CapturingMessage(Message, frozen=True, kw_only=True):
    """A copy of the worker makes the capture; its messages come through the file sent along.

    Without a copy they are all in that file: `size` bytes, from `start` on.
    """

    request_id: int
    pause_ms: float = 0.0
    pid: int = 0  # of the copy
    size: int = 0
    start: int = 0


class PartMessage(Message, frozen=True, kw_only=True):
    """A piece of one part of a checkpoint, in either direction."""

    request_id: int
    name: str
    data: bytes
    last: bool = True
    base: int = 0


class MemoryMessage(Message, frozen=True, kw_only=True, omit_defaults=True):
    """Stretches of a buffer: offsets and lengths. With a base, the rest is as it was there.

    Their bytes follow one another in `data`; or `behind` the messages, in the file that holds
    these; or `ahead` of them there, from `address` on; or they lie in the copy's memory: the buffer
    at `address`.
    """

    request_id: int
    name: str
    size: int
    skew: int = 0
    base: int = 0
    stretches: tuple[tuple[int, int], ...] = ()
    address: int = 0
    behind: bool = False
    ahead: bool = False
    data: bytes = b""


class AheadMessage(Message, frozen=True, kw_only=True):
    """Memory that a capture will bring, while the rest of it is still made. The file that is sent
    along has its bytes."""

    request_id: int
    memory: tuple[MemoryMessage, ...] = ()


class CheckpointCreatedMessage(Message, frozen=True, kw_only=True):
    """The capture is complete. The id is empty until the host has committed it."""

    request_id: int
    checkpoint_id: str = ""
    size_bytes: int = 0
    serialization_method: str = "cloudpickle"
    items: tuple[ItemReport, ...] = ()
    pause_ms: float = 0.0


class RestoreMessage(Message, frozen=True, kw_only=True):
    """Replace the namespace by a checkpoint's. To a worker, so many parts follow.

    A client gives an id, or the path of a file that holds an exported checkpoint.
    """

    request_id: int
    checkpoint_id: str
    parts: int = 0
    files: int = 0  # that travel with this message to a worker
    secrets: dict[str, str] = {}
    binary_secrets: dict[str, bytes] = {}  # those that may be no text
    trust: bool = False


class MappingMessage(Message, frozen=True, kw_only=True):
    """Where the bytes of a buffer are: of each run its place on the page grid, its length, the
    number of a file that came with the request, and the offset there. All else is zero.

    What is `under` deltas is said the same way. Of each delta: the beginning of its block on the
    grid, a stretch of the first file, and the delta's place in that."""

    request_id: int
    name: str
    size: int
    skew: int = 0
    runs: tuple[tuple[int, int, int, int], ...] = ()
    under: tuple[tuple[int, int, int, int], ...] = ()
    deltas: tuple[tuple[int, int, int, int], ...] = ()


class RestoredMessage(Message, frozen=True, kw_only=True):
    """The namespace is the checkpoint's."""

    request_id: int
    items: tuple[ItemReport, ...] = ()


class CompleteMessage(Message, frozen=True, kw_only=True):
    """What could the name at the end of this text be?"""

    request_id: int
    text: str


class CompletedMessage(Message, frozen=True, kw_only=True):
    """Names that could follow, each with what was there already."""

    request_id: int
    matches: tuple[str, ...] = ()


class InspectMessage(Message, frozen=True, kw_only=True):
    """Which variables are there?"""

    request_id: int


class Variable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One variable, as a person would like to see it."""

    name: str
    type_name: str
    size_bytes: int = 0
    summary: str = ""


class InspectedMessage(Message, frozen=True, kw_only=True):
    """The variables, in the order in which they came."""

    request_id: int
    variables: tuple[Variable, ...] = ()


class InterruptMessage(Message, frozen=True, kw_only=True):
    """A client wants the running cell to end."""


class ImportMessage(Message, frozen=True, kw_only=True):
    """Libraries that what comes next will need; it is not answered."""

    modules: tuple[str, ...] = ()


class ShutdownMessage(Message, frozen=True, kw_only=True):
    """End the worker."""


class WarmMessage(Message, frozen=True, kw_only=True):
    """A template runs this before it is forked, as cell 0 of every session."""

    code: str = ""


class WarmedMessage(Message, frozen=True, kw_only=True):
    """The template can be forked, or its warm-up failed."""

    error: ErrorMessage | None = None


class ForkMessage(Message, frozen=True, kw_only=True):
    """Fork a worker. The files control, page, stdout and stderr travel with the message."""

    request_id: int


class ForkedMessage(Message, frozen=True, kw_only=True):
    """There is a worker; a pidfd of it travels with the message."""

    request_id: int
    pid: int


class ExitedMessage(Message, frozen=True, kw_only=True):
    """A worker has ended: its exit code, or the negative number of a signal."""

    pid: int
    code: int


HostMessage = (
    ExecuteMessage
    | InputResponseMessage
    | CheckpointMessage
    | PartMessage
    | MappingMessage
    | RestoreMessage
    | CompleteMessage
    | InspectMessage
    | ImportMessage
    | ShutdownMessage
)
WorkerMessage = (
    ReadyMessage
    | CapturingMessage
    | AheadMessage
    | InputMessage
    | ResultMessage
    | PartMessage
    | MemoryMessage
    | CheckpointCreatedMessage
    | RestoredMessage
    | CompletedMessage
    | InspectedMessage
    | ErrorMessage
)
ClientMessage = (
    ExecuteMessage
    | InputResponseMessage
    | CheckpointMessage
    | RestoreMessage
    | InterruptMessage
    | ShutdownMessage
)
TemplateRequest = WarmMessage | ForkMessage | ShutdownMessage
TemplateReply = WarmedMessage | ForkedMessage | ExitedMessage

_encoder = msgspec.msgpack.Encoder()
# Made when first used: each looks through all of its messages, and no process reads all kinds.
_decoder = cache(msgspec.msgpack.Decoder)


def frame(message: Message) -> bytes:
    """The message as one frame."""
    return encode_frame(_encoder.encode(message))


def decode_host(payload: bytes) -> HostMessage:
    """What a worker reads. Raises Corrupt."""
    found: HostMessage = _decode(payload, HostMessage, "for a worker")
    return found


def decode_worker(payload: bytes) -> WorkerMessage:
    """What a host reads. Raises Corrupt: a worker runs code that nobody vouches for."""
    found: WorkerMessage = _decode(payload, WorkerMessage, "of a worker")
    return found


def decode_client(payload: bytes) -> ClientMessage:
    """What a host reads of a client. Raises Corrupt."""
    found: ClientMessage = _decode(payload, ClientMessage, "of a client")
    return found


def decode_template_request(payload: bytes) -> TemplateRequest:
    """What a template reads. Raises Corrupt."""
    found: TemplateRequest = _decode(payload, TemplateRequest, "for a template")
    return found


def decode_template_reply(payload: bytes) -> TemplateReply:
    """What a host reads of a template. Raises Corrupt."""
    found: TemplateReply = _decode(payload, TemplateReply, "of a template")
    return found


def _decode(payload: bytes, kind: object, what: str) -> Any:
    try:
        return _decoder(kind).decode(payload)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"not a message {what}: {error}") from None
