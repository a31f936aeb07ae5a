"""What a session's checkpoint holds, as values (spec/session-v1.md). It does no I/O."""

# Annotations are no texts here, as in `session_messages.py`.

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from holdfast.model.errors import Corrupt
from holdfast.protocol.session_messages import FORMAT, ItemReport

# From the best to the worst; a checkpoint's `serialization_method` is the worst one needed.
TIERS = ("cloudpickle", "msgpack", "json", "source", "placeholder")
Tier = Literal["cloudpickle", "msgpack", "json", "source", "placeholder", "secret"]

SMALL_PART = "namespace/small"
SMALL = 64 << 10  # records below this size share one part

# What a member of a record is: a variable, the state of a definition, an object that several
# records need, a piece of a large container, what was changed in a module, a library's state.
NAME = "name:"
DEFINITION = "definition:"
OBJECT = "object:"
SEGMENT = "segment:"
PATCH = "patch:"
STATE = "state:"

# States that an import may need, so they come before all imports.
BEFORE_IMPORTS = ("sys.path", "directory", "environment")

# How the reason of a placeholder begins that is one only as long as a library is missing.
MISSING = "needs what is missing: "
# How the reason begins of what came back with a placeholder inside.
HOLDS = "holds what cannot be saved: "
LEFT_OUT = "left out and not given again: secret "

BUFFERS = "buffers/"  # memory by label
# Labels of what every process has anyway: the session's globals, and the names of `builtins`.
GLOBALS, BUILTINS = "globals", "builtins"


if TYPE_CHECKING:
    Data = bytes | memoryview
else:
    Data = bytes  # for msgspec: a header has none


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The values of one or more members."""

    members: tuple[str, ...]
    tier: Tier
    data: Data = b""  # beside the header on disk, so that no limit of msgpack applies
    portable: bool = True
    type_name: str = ""
    reason: str = ""
    buffers: tuple[str, ...] = ()  # labels of the memory that the pickle takes, in its order
    flat: bool = False  # two pickles: the types of the nodes, then what is in them and the values
    uses: tuple[str, ...] = ()  # labels of all memory and objects that it needs beside it


class Cell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Source that ran; lines that nothing needs are blank."""

    number: int
    filename: str
    text: str
    flags: int = 0


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A class or function kept as source, and the variables bound to it."""

    label: str
    kind: Literal["class", "function"]
    name: str
    names: tuple[str, ...]
    cell: int
    first: int
    last: int
    block_first: int = 0
    block_last: int = 0
    qualname: str = ""
    line: int = 0
    index: int = 0


class Import(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A module the session imported, and the variables bound to it."""

    module: str
    names: tuple[str, ...] = ()
    statement: str = ""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is kept as text."""

    cells: tuple[Cell, ...] = ()
    definitions: tuple[Definition, ...] = ()
    imports: tuple[Import, ...] = ()
    # Names of the secrets that the cells lost; None where older versions left texts instead.
    left_out: tuple[str, ...] | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when the capture was made."""

    format: int = FORMAT
    created: str = ""
    python: str = ""
    implementation: str = ""
    platform: str = ""
    execution_count: int = 0
    future: int = 0  # the flags of `from __future__ import` that hold for the next cell
    serialization_method: str = "cloudpickle"
    libraries: dict[str, str] = {}


class ReportPart(msgspec.Struct, frozen=True, kw_only=True):
    """The capture's report."""

    items: tuple[ItemReport, ...] = ()


_T = TypeVar("_T")
_encoder = msgspec.msgpack.Encoder()


def encode(value: msgspec.Struct) -> bytes:
    """One of the values above as msgpack."""
    return _encoder.encode(value)


def decode(data: bytes, kind: type[_T]) -> _T:
    """Read one of the values above. Raises Corrupt."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"not a {kind.__name__.lower()}: {error}") from None


def minor(python: str) -> tuple[str, ...]:
    """The part of a Python version that decides whether bytecode can be shared."""
    return tuple(python.split(".")[:2])


def lowest(tiers: set[str]) -> str:
    """The worst tier among those that were needed."""
    return max((tier for tier in tiers if tier in TIERS), key=TIERS.index, default=TIERS[0])


def encode_record(record: Record) -> bytes:
    """A record as it stands in its part."""
    if record.data:
        header = _encoder.encode(msgspec.structs.replace(record, data=b""))
    else:
        header = _encoder.encode(record)
    lengths = len(header).to_bytes(4, "big"), len(record.data).to_bytes(8, "big")
    return b"".join((lengths[0], header, lengths[1], record.data))


def is_record(part: str) -> bool:
    """Whether a part of that name holds records."""
    return part.startswith("namespace/")


def decode_records(part: bytes | memoryview) -> Iterator[Record]:
    """The records of a part; what is large in it is not copied. Raises Corrupt."""
    view = memoryview(part)
    position = 0
    while position < len(view):
        header, position = _take(view, position, 4)
        data, position = _take(view, position, 8)
        found = data if len(data) > SMALL else bytes(data)
        yield msgspec.structs.replace(decode(bytes(header), Record), data=found)


def _take(view: memoryview, position: int, width: int) -> tuple[memoryview, int]:
    start = position + width
    end = start + int.from_bytes(view[position:start], "big")
    if start > len(view) or end > len(view):
        raise Corrupt("a part of records ends in the middle of one")
    return view[start:end], end
