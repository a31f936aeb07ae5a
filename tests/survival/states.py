"""States that another process takes up at every call of their manager.

Before each public call of a `StateManager`, what it holds is saved in a folder of its own, a new
process loads that and saves it again, and the manager goes on with what that process wrote. A state
that cannot be saved, or is of classes that no other process has, promises nothing: it stays.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.survival.count import Count

from holdfast.model import moment
from holdfast.model.errors import Denied, HoldfastError
from holdfast.model.secrets import Rule
from holdfast.state import StateManager, values
from holdfast.state import document as documents
from holdfast.state.files import Directory
from holdfast.state.types import Types, name_of

CALLS = (
    "set_state", "get_state", "checkpoint", "begin_checkpoint", "list_checkpoints", "rollback",
    "stage", "diff", "fork", "begin_fork", "save_state", "begin_save",
)  # fmt: skip
MOST = (
    20  # processes for one test: those that hypothesis makes examples for have thousands of calls
)
_STRANGER = Path(__file__).with_name("stranger.py")
_ROOT = Path(__file__).resolve().parent.parent.parent
_NO_CLASS = 3


class Relays:
    """Hands over the states of all managers of this process, once `begin` was called."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._inside = threading.local()

    def begin(self) -> None:
        """From now on, for as long as the process lives."""
        for name in CALLS:
            setattr(StateManager, name, self._before(getattr(StateManager, name)))

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def called(manager: StateManager, *given: Any, **named: Any) -> Any:
            # A signal's handler calls it in the main thread, and so may a call itself.
            if getattr(self._inside, "call", False):
                return call(manager, *given, **named)
            self._inside.call = True
            try:
                self._relay(manager)
                return call(manager, *given, **named)
            finally:
                self._inside.call = False

        return called

    def _relay(self, manager: StateManager) -> None:
        main = threading.current_thread() is threading.main_thread()
        if not main or not manager.state_data or self._count.here >= MOST:
            return
        with manager._lock, tempfile.TemporaryDirectory() as folder:
            try:
                manager._replace(_through_another(manager, Path(folder)))
            except HoldfastError as error:
                self._count.left(str(error))
            else:
                self._count.crossed()


def _through_another(manager: StateManager, folder: Path) -> dict[str, Any]:
    """The manager's state as another process wrote it. Raises HoldfastError when it cannot be
    saved, and Denied when that process has not its classes."""
    now, version = manager.state_data, manager._versions.current
    encoded = values.encode(now, manager._types, rule=Rule.of(True))
    types = Types(encoded.classes, below=manager._types)
    values.decode(encoded.state, types)
    place = Directory(folder, manager.session_id, moment.now)
    place.make()
    place.save(
        documents.new(
            session_id=manager.session_id,
            reason="survival",
            stage=documents.stage_of(now.get("current_stage")),
            state_info=encoded.state,
            parent_session=documents.parent_of(now.get("parent_session")),
            state_version=version,
        )
    )
    files = [f"{name_of(cls)}={_file(cls)}" for cls in encoded.classes]
    made = subprocess.run(
        [sys.executable, _STRANGER, folder, manager.session_id, str(version), *files],
        env={**os.environ, "HOLDFAST_HOME": f"{folder}/home", "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode == _NO_CLASS:
        raise Denied("another process has not its classes")
    assert made.returncode == 0, f"the state was not taken up: {made.stderr}"
    written = place.saved()
    assert written is not None
    try:
        return values.decode(written.state_info, types)
    except HoldfastError as error:
        raise AssertionError(f"what another process wrote cannot be read: {error}") from error


def _file(cls: type) -> str:
    return getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
