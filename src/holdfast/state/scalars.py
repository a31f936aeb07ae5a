"""Scalars: values of the standard library that have no other values inside, and their JSON form.

Each kind says how it is packed into named fields and unpacked again. `pack` raises ValueError
for what could not come back as it was.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of scalar. The fields differ from kind to kind, hence the Any."""

    tag: str
    cls: type
    pack: Callable[[Any], dict[str, object]]
    unpack: Callable[[dict[str, Any]], object]


def _text(tag: str, cls: type, pack: Callable[[Any], str], unpack: Callable[[str], object]) -> Kind:
    return Kind(tag, cls, lambda v: {"value": pack(v)}, lambda fields: unpack(fields["value"]))


def _binary(tag: str, cls: Callable[[bytes], bytes | bytearray]) -> Kind:
    return Kind(
        tag,
        cls if isinstance(cls, type) else bytes,
        lambda v: {"base64": base64.b64encode(v).decode("ascii")},
        lambda fields: cls(base64.b64decode(fields["base64"], validate=True)),
    )


def _is_fixed(zone: tzinfo | None) -> bool:
    """Does the ISO text alone say which zone it was?"""
    if zone is None:
        return True
    # A fixed offset may have been given a name, which the text would lose.
    return type(zone) is timezone and (
        zone.tzname(None) == timezone(zone.utcoffset(None)).tzname(None)
    )


def _pack_datetime(value: datetime) -> dict[str, object]:
    more: dict[str, object] = {"fold": 1} if value.fold else {}
    if type(value.tzinfo) is ZoneInfo and value.tzinfo.key:
        more["zone"] = value.tzinfo.key
    elif not _is_fixed(value.tzinfo):
        raise ValueError(f"a datetime whose zone is a {type(value.tzinfo).__name__}; use zoneinfo")
    return {"value": value.isoformat(), **more}


def _unpack_datetime(fields: dict[str, Any]) -> datetime:
    value = datetime.fromisoformat(fields["value"]).replace(fold=fields.get("fold", 0))
    return value.replace(tzinfo=ZoneInfo(fields["zone"])) if "zone" in fields else value


def _pack_time(value: time) -> dict[str, object]:
    if not _is_fixed(value.tzinfo):
        raise ValueError(f"a time whose zone is a {type(value.tzinfo).__name__}; use a datetime")
    return {"value": value.isoformat(), **({"fold": 1} if value.fold else {})}


def _unpack_time(fields: dict[str, Any]) -> time:
    return time.fromisoformat(fields["value"]).replace(fold=fields.get("fold", 0))


KINDS: tuple[Kind, ...] = (
    Kind("datetime", datetime, _pack_datetime, _unpack_datetime),
    _text("date", date, date.isoformat, date.fromisoformat),
    Kind("time", time, _pack_time, _unpack_time),
    Kind(
        "timedelta",
        timedelta,
        lambda v: {"days": v.days, "seconds": v.seconds, "microseconds": v.microseconds},
        lambda fields: timedelta(**fields),
    ),
    _text("path", type(Path()), str, Path),
    _text("posix_path", PurePosixPath, str, PurePosixPath),
    _text("windows_path", PureWindowsPath, str, PureWindowsPath),
    _binary("bytes", bytes),
    _binary("bytearray", bytearray),
    _text("decimal", Decimal, str, Decimal),
    _text("uuid", UUID, str, UUID),
    Kind(
        "complex",
        complex,
        lambda v: {"real": v.real, "imag": v.imag},
        lambda fields: complex(fields["real"], fields["imag"]),
    ),
)
BY_CLASS: dict[type, Kind] = {kind.cls: kind for kind in KINDS}
BY_TAG: dict[str, Kind] = {kind.tag: kind for kind in KINDS}
