"""Numbers, ports, sizes and durations as people type them: `3`, `8787`, `10GB`, `512MiB`, `7d`,
`1h30m`."""

from __future__ import annotations

import re
from datetime import timedelta

import click

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_STEP = re.compile(r"(\d+)\s*([smhdw])", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}

MAX_PORT = 65535
_DIGITS = 18  # more than anybody has of anything, and what a 64-bit number can hold


def parse_count(text: str, least: int) -> int:
    """A whole number. Raises ValueError."""
    if not text.isascii() or not text.isdecimal():
        raise ValueError(f"{brief(text)} is not a whole number, {least} or more")
    if len(text) > _DIGITS:
        raise ValueError(f"{brief(text)} is too large")
    if int(text) < least:
        raise ValueError(f"{brief(text)} is not a whole number, {least} or more")
    return int(text)


def parse_port(text: str) -> int:
    """A port to listen on; 0 is any. Raises ValueError."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
    if not is_number or int(text) > MAX_PORT:
        raise ValueError(f"{brief(text)} is not a port, from 0 to {MAX_PORT}")
    return int(text)


def brief(text: str) -> str:
    """What somebody typed, quoted, and cut where it is very long."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def parse_size(text: str) -> int:
    """Bytes; `GB` is decimal and `GiB` binary. Raises ValueError."""
    found = _SIZE.fullmatch(text.strip())
    if not found or (found[3] and not found[2]):
        raise ValueError(f"{brief(text)} is not a size; write 500MB, 10GB or 4GiB")
    number, unit, binary = found.groups()
    if len(number) > 2 * _DIGITS:
        raise ValueError(f"{brief(text)} is too large")
    scale = (1024 if binary else 1000) ** _POWER[unit.lower()]
    return int(number) * scale if number.isdigit() else int(float(number) * scale)


def parse_duration(text: str) -> timedelta:
    """`90s`, `15m`, `1h30m`, `7d`, `2w`; more than nothing. Raises ValueError."""
    compact = text.strip()
    steps = _STEP.findall(compact)
    if not re.fullmatch(rf"(?:{_STEP.pattern}\s*)+", compact, re.IGNORECASE):
        raise ValueError(f"{brief(text)} is not a duration; write 90s, 15m, 1h30m, 7d or 2w")
    if any(len(number) > _DIGITS for number, _ in steps):
        raise ValueError(f"{brief(text)} is longer than time goes")
    total = sum(int(number) * _SECONDS[unit.lower()] for number, unit in steps)
    try:
        duration = timedelta(seconds=total)
    except OverflowError:
        raise ValueError(f"{brief(text)} is longer than time goes") from None
    if not duration:
        raise ValueError(f"{text!r} is no time at all")
    return duration


def size_text(count: int) -> str | None:
    """`10GiB`, as `parse_size` reads it; None when it is no round number of any unit."""
    for unit in ("pi", "ti", "gi", "mi", "ki", "p", "t", "g", "m", "k"):
        scale = (1024 if unit.endswith("i") else 1000) ** _POWER[unit[0]]
        if count and count % scale == 0:
            letter = unit[0] if unit == "k" else unit[0].upper()
            return f"{count // scale}{letter}{unit[1:]}B"
    return None


def duration_text(seconds: float) -> str | None:
    """`1h30m`, as `parse_duration` reads it; None below a minute, and for parts of a second."""
    if seconds < 60 or seconds % 1:
        return None
    left, steps = int(seconds), []
    for unit in "dhms":
        number, left = divmod(left, _SECONDS[unit])
        steps += [f"{number}{unit}"] if number else []
    return "".join(steps)


class Number(click.ParamType[int]):
    """An option's whole number."""

    name = "number"

    def __init__(self, least: int) -> None:
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            return parse_count(str(value), self._least)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Port(click.ParamType[int]):
    """An option's port."""

    name = "port"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        try:
            return parse_port(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


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
