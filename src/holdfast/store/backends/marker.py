"""The marker: `holdfast.json`, which says that this is a store, of which version and id. Pure."""

from __future__ import annotations

import json
import re
import uuid

from blake3 import blake3

from holdfast.model import moment
from holdfast.model.errors import Corrupt, NotFound, Unsupported

NAME = "holdfast.json"
FORMAT = "holdfast-store"
VERSION = 1
_ID = re.compile(r"[0-9a-f-]{1,64}")


def missing(place: object) -> NotFound:
    """The error of a place that has no marker."""
    return NotFound(
        f"there is no store at {place}",
        hint="`holdfast init` makes one, and so does the first checkpoint;"
        " or check HOLDFAST_STORE or --store",
    )


def encode_new() -> bytes:
    """The marker of a store that is made now."""
    fields: dict[str, object] = {
        "created": moment.to_text(moment.now()),
        "format": FORMAT,
        "id": str(uuid.uuid4()),
        "version": VERSION,
    }
    return _encode(fields)


def decode(data: bytes, place: str) -> str:
    """The store's id; raises Corrupt or Unsupported."""
    try:
        fields = json.loads(data)
        version, store_id = int(fields["version"]), str(fields["id"])
        good = fields.pop("checksum", None) and _encode(fields) == data
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise Corrupt(f"{place}/{NAME} is damaged", where=NAME) from None
    if version > VERSION:
        raise Unsupported(
            f"the store at {place} has format {version}, this version knows {VERSION}",
            hint="upgrade Holdfast to open it",
        )
    if not good:
        raise Corrupt(f"{place}/{NAME} does not match its checksum", where=NAME)
    if not _ID.fullmatch(store_id):  # it becomes the name of a folder on this machine
        raise Corrupt(f"{place}/{NAME} has an id that is none", where=NAME)
    return store_id


def _encode(fields: dict[str, object]) -> bytes:
    plain = json.dumps(fields, sort_keys=True, separators=(",", ":")) + "\n"
    checksum = blake3(plain.encode()).hexdigest()[:32]
    whole = fields | {"checksum": checksum}
    return (json.dumps(whole, sort_keys=True, separators=(",", ":")) + "\n").encode()
