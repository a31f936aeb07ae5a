"""The secrets that a checkpoint lacks: only these are handed to the worker that restores it.

Restoring runs what is in a checkpoint. So a worker is not given what the checkpoint's own report
does not ask for, and everybody can read in the report what that is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.model.secrets import asked_for
from holdfast.session import layout

# How reports said it before they had a list of names.
_SAID = re.compile(r"left out a secret: (.+?)(?:; |$)")
_IN_SOURCE = re.compile(r"'<secret ([^'\n]*)>'")


def names(parts: Mapping[str, bytes]) -> set[str]:
    """The names of the secrets that are missing in a checkpoint. Raises Corrupt."""
    found: set[str] = set()
    if "report" in parts:
        for item in layout.decode(parts["report"], layout.ReportPart).items:
            found.update(item.secrets)
            if not item.secrets:
                found.update(_SAID.findall(item.reason))
                found.update((item.name,) if item.tier == "secret" else ())
    if "sources" in parts:
        sources = layout.decode(parts["sources"], layout.Sources)
        if sources.left_out is None:
            found.update(name for cell in sources.cells for name in _IN_SOURCE.findall(cell.text))
    return found


def chosen(given: Mapping[str, str | bytes], parts: Mapping[str, bytes]) -> dict[str, str | bytes]:
    """Those of the given secrets that a checkpoint asks for. Raises Corrupt."""
    return asked_for(given, names(parts)) if given else {}
