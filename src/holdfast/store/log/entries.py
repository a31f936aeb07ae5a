"""Entries: what the log says. Their fold is the store's state (spec/store-v1.md, section 4).

Structures are encoded as arrays; a new field goes to the end and has a default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from holdfast.model.errors import BadInput, Corrupt, Unsupported
from holdfast.store.log.frames import MAX_HEADER

VOLUME_SIZE = 16
BEAT_SIZE = 16
_ID_SIZE = 16
_CHUNK_ID_SIZE = 32
_KEY_ID_SIZE = 8
# Logs are made of commits for the most part, so their fields are checked while they are read.
Id = Annotated[bytes, msgspec.Meta(min_length=_ID_SIZE, max_length=_ID_SIZE)]
Hash = Annotated[bytes, msgspec.Meta(min_length=_CHUNK_ID_SIZE, max_length=_CHUNK_ID_SIZE)]
Size = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]

HERE = bytes(VOLUME_SIZE)  # "the segment this entry was first written to"

Verb = Literal["checkpoint", "rollback", "fork", "restore", "undo", "delete", "import", "aside"]
STILL = ("import", "aside")  # verbs of commits that move no head


class Commit(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False, tag="commit"):
    """A checkpoint came into being, and its subject's head moved to it. With the verb `import` one
    that was made elsewhere came here, and with `aside` one waits for others: no head moved."""

    id: Id
    subject: str
    parents: tuple[Id, ...]
    reason: str
    stage: str | None
    time: int
    tags: dict[str, str]
    digest: Hash
    size: int
    stored: int
    part_count: int
    parts: bytes
    parts_chunk: bytes
    volumes: bytes
    chunk_ids: bytes
    chunk_sizes: tuple[Size, ...]
    verb: Verb
    before: Id | None
    rollback_of: Id | None
    fence: int = 0
    maker: bytes = b""  # of an import: the key that signed it where it was made
    proof: bytes = b""
    trusted: bool = False  # of an import: who brought it vouches for it
    labels: dict[str, str] | None = None  # of an import: the tags in force where it comes from
    pinned: bool = False  # of an import: that it is pinned there


class Move(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="move"):
    """A subject's head moved to another checkpoint, or to none."""

    subject: str
    before: bytes | None
    after: bytes | None
    verb: Verb
    time: int
    fence: int = 0


class Bound(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One of several heads that moved together."""

    subject: str
    before: bytes | None
    after: bytes
    fence: int


class Moves(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="moves"):
    """The heads of several subjects moved at once."""

    heads: tuple[Bound, ...]
    verb: Verb
    time: int

    def move(self, head: Bound) -> Move:
        """What it says of one of them."""
        return Move(
            subject=head.subject,
            before=head.before,
            after=head.after,
            verb=self.verb,
            time=self.time,
            fence=head.fence,
        )


class Label(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="label"):
    """Tags or the pin of a checkpoint changed."""

    id: bytes
    set: dict[str, str]
    unset: tuple[str, ...]
    pinned: bool | None
    time: int


class Drop(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="drop"):
    """Checkpoints ceased to exist."""

    ids: tuple[bytes, ...]
    time: int


class Relocate(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="relocate"):
    """Live chunks of a volume are now elsewhere."""

    volume: bytes
    to: bytes
    time: int


class Condemn(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="condemn"):
    """No later commit may refer to these volumes."""

    volumes: bytes
    time: int


class Own(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="own"):
    """A subject has an owner from here on; this entry's number is the lease's token."""

    subject: str
    owner: str
    url: str | None
    beat: bytes
    lasts: int
    time: int


class Disown(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="disown"):
    """The lease of that token is over."""

    subject: str
    token: int
    time: int


class Upto(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="upto"):
    """The first frame of a snapshot: everything up to this number is in it, in `count` frames."""

    seq: int
    count: int = 0


class Encrypted(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="encrypted"):
    """The first entry of an encrypted store: from here on everything is sealed."""

    cipher: str
    check: bytes
    time: int


class Sealed(msgspec.Struct, frozen=True, array_like=True, kw_only=True, tag="sealed"):
    """Another entry, encrypted."""

    box: bytes


Entry = (
    Commit
    | Move
    | Moves
    | Label
    | Drop
    | Relocate
    | Condemn
    | Own
    | Disown
    | Upto
    | Encrypted
    | Sealed
)


class Glimpse(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="commit"):
    """What a commit begins with; the rest is passed over."""

    id: Id
    subject: str


_COMMIT = b"\xa6commit"  # behind the head of an array of 16 elements or more
_STILL = tuple(verb.encode() for verb in STILL)
_encoder = msgspec.msgpack.Encoder()
_glimpses = msgspec.msgpack.Decoder(Glimpse)
_decoder: msgspec.msgpack.Decoder[Entry] = msgspec.msgpack.Decoder(Entry)


def encode_entry(entry: Entry) -> bytes:
    """The entry's bytes; raises BadInput for what nobody could read back."""
    return encode_checked(entry)[0]


def encode_checked(entry: Entry) -> tuple[bytes, Entry]:
    """The same, and the entry as whoever reads it will find it."""
    try:
        header = _encoder.encode(entry)
        found = decode_entry(header)
    except (UnicodeError, TypeError, OverflowError, Corrupt) as error:
        raise BadInput(
            f"this cannot be recorded: {error}",
            hint="reasons, stages, tags and their values are texts",
        ) from None
    if len(header) > MAX_HEADER:
        raise BadInput(
            f"this cannot be recorded: its description has {len(header)} bytes",
            hint="give long texts as a part, not as a reason or a tag",
        )
    return header, found


def decode_entry(header: bytes) -> Entry:
    """Read an entry; raises Corrupt, or Unsupported for one of a newer kind."""
    try:
        entry = _decoder.decode(header)
    except msgspec.ValidationError as error:
        if "Invalid value" in str(error):
            raise Unsupported(
                f"the log has an entry this version does not know: {error}",
                hint="upgrade Holdfast to read this store",
            ) from None
        raise Corrupt(f"an entry does not make sense: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"an entry cannot be read: {error}") from None
    if not _fits(entry):
        raise Corrupt("an entry does not make sense: a field has the wrong length")
    return entry


def glimpse(header: bytes) -> Glimpse | None:
    """What a commit begins with, at a third of the price of all of it; None for what is none, or
    perhaps moved no head, or cannot be read: that is to be decoded."""
    if header[3:10] != _COMMIT or any(verb in header for verb in _STILL):
        return None
    try:
        return _glimpses.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def frees_space(entry: Entry) -> bool:
    """Whether space can be given back because of this entry."""
    match entry:
        case Drop() | Condemn() | Relocate():
            return True
        case Move():
            return entry.verb == "delete"
    return False


def _fits(entry: Entry) -> bool:
    """Whether ids and lists of names have the lengths that they must have."""
    match entry:
        case Commit():
            stored = len(entry.chunk_ids) // _CHUNK_ID_SIZE
            return (
                len(entry.parts_chunk) in (0, _CHUNK_ID_SIZE)
                and len(entry.maker) in (0, _KEY_ID_SIZE)
                and len(entry.proof) in (0, _CHUNK_ID_SIZE)
                and not len(entry.volumes) % VOLUME_SIZE
                and not len(entry.chunk_ids) % _CHUNK_ID_SIZE
                and len(entry.chunk_sizes) == 3 * stored
            )
        case Move():
            return _are_ids([entry.before, entry.after])
        case Moves():
            return all(_are_ids([head.before, head.after]) for head in entry.heads)
        case Label():
            return _are_ids([entry.id])
        case Drop():
            return _are_ids(entry.ids)
        case Relocate():
            return len(entry.volume) == VOLUME_SIZE and not len(entry.to) % VOLUME_SIZE
        case Condemn():
            return not len(entry.volumes) % VOLUME_SIZE
        case Own():
            return len(entry.beat) == BEAT_SIZE and entry.lasts > 0
        case Disown() | Upto() | Encrypted() | Sealed():
            return True


def _are_ids(ids: Sequence[bytes | None]) -> bool:
    return not ids or {len(one) for one in ids if one is not None} <= {_ID_SIZE}


def split_names(packed: bytes) -> list[bytes]:
    """Cut concatenated volume names."""
    if len(packed) == VOLUME_SIZE:
        return [packed]  # as nearly always in a long log
    return [packed[i : i + VOLUME_SIZE] for i in range(0, len(packed), VOLUME_SIZE)]
