"""Amounts as people say them."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def size(count: int) -> str:
    """`0 B`, `999 B`, `1.5 MB`: decimal units, three figures at most."""
    value = float(count)
    for unit in _UNITS:
        if value < 999.5 or unit == _UNITS[-1]:
            break
        value /= 1000
    figures = f"{value:.1f}" if unit != "B" and value < 9.95 else f"{value:.0f}"
    return f"{figures} {unit}"
