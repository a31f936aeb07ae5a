"""How large a checkpoint may be: known before the work where that is easy, checked at the end."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.protocol.session_messages import ErrorMessage
from holdfast.session.worker.texts import clean, type_module

_NAMED = 5  # variables that the error names
HINT = (
    "delete what can be made again, leave large variables out with max_item_bytes=, or raise "
    "max_checkpoint_bytes="
)


class CheckpointTooLarge(Exception):
    """The session has more in it than a checkpoint may hold."""


def check_ahead(namespace: Mapping[str, object], limit: int | None, item: int | None) -> None:
    """Raise CheckpointTooLarge if memory that needs no pickling to be counted is too much.

    What is larger than the limit for one `item` is left out anyway.
    """
    if limit is None:
        return
    found = {id(value): (name, _surely(value)) for name, value in list(namespace.items())}
    sizes = {clean(str(name)): size for name, size in found.values() if item is None or size < item}
    check(sum(sizes.values()), sizes, limit)


def check(total: int, sizes: Mapping[str, int], limit: int | None) -> None:
    """Raise CheckpointTooLarge, with the names of the largest variables."""
    if limit is None or total <= limit:
        return
    largest = sorted(sizes.items(), key=lambda each: -each[1])[:_NAMED]
    names = ", ".join(f"{name[:40]} ({_shown(size)})" for name, size in largest if size)
    raise CheckpointTooLarge(
        f"{_shown(total)} are more than max_checkpoint_bytes, {_shown(limit)}; the largest: {names}"
    )


def explained(message: ErrorMessage, error: BaseException) -> ErrorMessage:
    """What the host is told, with what to do about it."""
    if not isinstance(error, CheckpointTooLarge):
        return message
    kind, text = type(error).__name__, str(error)
    return msgspec.structs.replace(message, error_type=kind, message=text, hint=HINT)


def _shown(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size} bytes"


def _surely(value: object) -> int:
    """Bytes that a checkpoint needs at least for a value; only for what tells without pickling."""
    kind = type(value)
    if kind is bytes or kind is bytearray or kind is str:
        return len(value)  # type: ignore[arg-type]  # these have a length
    if type_module(type(value)) == "numpy" and getattr(value, "base", value) is None:
        return int(getattr(value, "nbytes", 0))
    return 0
