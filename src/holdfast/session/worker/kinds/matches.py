"""Matches of regular expressions: found again in the same text, and compared."""

from __future__ import annotations

import re
from typing import Any

from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction

_WAYS = ("match", "search", "fullmatch")


# `Any`: patterns of texts and of bytes.
def match(pattern: re.Pattern[Any], way: str, text: Any, first: int, end: int) -> Any:
    """The match that this way of looking finds."""
    return getattr(pattern, way)(text, first, end)


def _match(recorder: Recorder, obj: re.Match[Any]) -> Reduction:
    for way in _WAYS:
        for first in (obj.pos, obj.start()):
            found = match(obj.re, way, obj.string, first, obj.endpos)
            if found is not None and found.regs == obj.regs and found.pos == obj.pos:
                return match, (obj.re, way, obj.string, first, obj.endpos)
    return recorder.hole(obj, "it cannot be found again in its text")


EXACT: dict[type, Reduce] = {re.Match: _match}
