"""Locations: which place a session's checkpoints are kept in, by what somebody asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model import home
from holdfast.model.errors import BadInput, UsageError, from_os_error
from holdfast.state.files import Directory
from holdfast.state.place import Clock, Place
from holdfast.state.shelf import Shelf

if TYPE_CHECKING:
    from holdfast.store import Store

APP = "holdfast"


def place_of(
    session_id: str,
    app: str,
    directory: str | os.PathLike[str] | None,
    store: Store | None,
    clock: Clock,
) -> Place:
    """The place; nothing is made yet. Raises BadInput, or UsageError for two places at once."""
    if store is not None:
        if directory is not None:
            raise UsageError("a state is kept on a store or in a directory, not in both")
        return Shelf(store, session_id)
    return Directory(_path(app, directory), session_id, clock)


def _path(app: str, directory: str | os.PathLike[str] | None) -> Path:
    try:
        if directory is not None:
            path = Path(directory).expanduser()
        elif app == APP:
            path = home.home() / "sessions"
        else:
            path = Path.home() / f".{app}" / "sessions"
        path = path.absolute()
        if b"\0" in os.fsencode(path):
            raise BadInput(f"no directory can be called {str(path)!r}")
    except RuntimeError as error:  # ~nobody, or a user without a home
        hint = "give directory=, or set HOME"
        raise BadInput(f"no directory for the state: {error}", hint=hint) from None
    except UnicodeEncodeError:
        raise BadInput(f"no directory can be called {directory!r}") from None
    except OSError as error:  # there is no working directory any more
        raise from_os_error(error, "finding the directory for checkpoints") from error
    return path
