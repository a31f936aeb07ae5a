"""Times: UTC, microseconds, RFC 3339, and never going backwards."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.model.errors import BadInput

_TICK = timedelta(microseconds=1)


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


def after(last: datetime | None, clock: datetime) -> datetime:
    """The clock's time, or last + 1 microsecond when the clock stands still or stepped back.

    Raises BadInput when `last` is the last moment that can be written.
    """
    if last is None or clock > last:
        return clock
    try:
        return last + _TICK
    except OverflowError:
        raise BadInput(
            f"no time comes after {to_text(last)}",
            hint="something is dated at the end of time: set the clock right and remove that",
        ) from None


def to_text(time: datetime) -> str:
    """RFC 3339 with microseconds: `2026-01-02T03:04:05.000006Z`."""
    # Not strftime: its years have as many digits as they need, and RFC 3339 wants four.
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_text(text: str) -> datetime:
    """Read RFC 3339; a time without a zone is UTC. Raises BadInput."""
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadInput(
            f"not a time: {text!r}", hint="RFC 3339, e.g. 2026-01-02T03:04:05Z"
        ) from None


def to_micros(time: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (time - _EPOCH) // _TICK


def from_micros(micros: int) -> datetime:
    """The inverse of `to_micros`; raises BadInput outside the years 1 to 9999."""
    try:
        return _EPOCH + micros * _TICK
    except OverflowError:
        raise BadInput(f"not a time: {micros} microseconds") from None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = to_micros(datetime.max.replace(tzinfo=UTC))  # the last microsecond there is
