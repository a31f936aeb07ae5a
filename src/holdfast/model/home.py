"""Where Holdfast keeps its own things: `HOLDFAST_HOME`, the default store, the registry."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.errors import BadInput


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """`HOLDFAST_HOME`, else `~/.holdfast`."""
    given = environ.get("HOLDFAST_HOME")
    try:
        return Path(given).expanduser() if given else Path.home() / ".holdfast"
    except RuntimeError:
        raise BadInput(
            "this user has no home directory", hint="set HOME or HOLDFAST_HOME to a directory"
        ) from None


def default_store_url(environ: Mapping[str, str] = os.environ) -> str:
    """`HOLDFAST_STORE`, else the directory `store` in the home."""
    return environ.get("HOLDFAST_STORE") or str(home(environ) / "store")
