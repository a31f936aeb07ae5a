"""Numbers, sizes and durations as people type them: `3`, `10GB`, `512MiB`, `7d`, `1h30m`."""

from __future__ import annotations

import re
from datetime import timedelta

import click

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_STEP = re.compile(r"(\d+)\s*([smhdw])", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_size(text: str) -> int:
    """Bytes; `GB` is decimal and `GiB` binary. Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    if not found or (found[3] and not found[2]):
        raise ValueError(f"{text!r} is not a size; write 500MB, 10GB or 4GiB")
    number, unit, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWER[unit.lower()])


def parse_duration(text: str) -> timedelta:
    """`90s`, `15m`, `1h30m`, `7d`, `2w`; more than nothing. Raises ValueError."""
    compact = text.strip()
    steps = _STEP.findall(compact)
    if not re.fullmatch(rf"(?:{_STEP.pattern}\s*)+", compact, re.IGNORECASE):
        raise ValueError(f"{text!r} is not a duration; write 90s, 15m, 1h30m, 7d or 2w")
    total = sum(int(number) * _SECONDS[unit.lower()] for number, unit in steps)
    try:
        duration = timedelta(seconds=total)
    except OverflowError:
        raise ValueError(f"{text!r} is longer than time goes") from None
    if not duration:
        raise ValueError(f"{text!r} is no time at all")
    return duration


class Number(click.ParamType[int]):
    """An option's whole number."""

    name = "number"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        text = str(value)
        if not text.isascii() or not text.isdecimal() or int(text) < self._least:
            self.fail(f"{text!r} is not a whole number, {self._least} or more", param, ctx)
        return int(text)


class Size(click.ParamType[int]):
    """An option's size in bytes."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Duration(click.ParamType[timedelta]):
    """An option's stretch of time."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
