"""An array in a few figures and two small plots. Pure: bytes in, figures out."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

POINTS = 60  # of a plot
_DTYPE = re.compile(r"[<>=|]?[biufc]\d{1,2}|\|?b1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What there is to tell. The figures are of the items that were looked at, without NaN."""

    shape: tuple[int, ...]
    dtype: str
    looked_at: int = 0
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    missing: int = 0  # NaN and infinite ones
    series: tuple[float, ...] = ()  # in order, each the mean of a stretch
    histogram: tuple[int, ...] = ()


def known(dtype: str) -> bool:
    """Whether items of that type are numbers that can be looked at."""
    return _DTYPE.fullmatch(dtype) is not None


def summarise(data: bytes | memoryview, dtype: str, shape: tuple[int, ...]) -> Summary:
    """The summary of an array; `data` may be only its beginning."""
    if not known(dtype):
        return Summary(shape=shape, dtype=dtype)
    kind = np.dtype(dtype)
    count = min(len(data) // kind.itemsize, math.prod(shape))
    items = np.frombuffer(data, kind, count)
    return _figures(items, shape, str(kind))


def strided(
    data: bytes | memoryview,
    dtype: str,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
) -> Summary:
    """The same of a view into memory; without figures where the view leaves the memory."""
    if not known(dtype):
        return Summary(shape=shape, dtype=dtype)
    kind = np.dtype(dtype)
    try:
        view = np.ndarray(shape, kind, data, offset, strides)
    except (ValueError, TypeError):
        return Summary(shape=shape, dtype=str(kind))
    return _figures(view.reshape(-1), shape, str(kind))


def _figures(items: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: str) -> Summary:
    if items.dtype.kind == "c":
        items = np.abs(items)
    values = items.astype(np.float64, copy=False)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return Summary(shape=shape, dtype=dtype, looked_at=items.size, missing=items.size)
    low, high = float(finite.min()), float(finite.max())
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(finite.mean())
        bins = min(24, max(1, finite.size))
        spread = high - low
        counts = np.histogram(finite, bins)[0] if 0 < spread < math.inf else np.array([finite.size])
    return Summary(
        shape=shape,
        dtype=dtype,
        looked_at=items.size,
        minimum=low,
        maximum=high,
        mean=mean if math.isfinite(mean) else None,
        missing=int(items.size - finite.size),
        series=_series(values),
        histogram=tuple(int(each) for each in counts),
    )


def _series(values: np.ndarray[Any, Any]) -> tuple[float, ...]:
    """At most so many points, each the mean of the items that it stands for."""
    cleaned = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    if cleaned.size <= POINTS:
        return tuple(float(each) for each in cleaned)
    edges = np.linspace(0, cleaned.size, POINTS + 1).astype(int)
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.add.reduceat(cleaned, edges[:-1]) / np.diff(edges)
    return tuple(float(each) if math.isfinite(each) else 0.0 for each in means)
