"""What a restore changes in its process, as one list of pieces.

A restore that fails must leave the session as it was. So all that it touches stands in `PIECES`,
each piece with a function that takes its state before the restore and one that puts that state
back. A restore that begins to touch something else needs a new piece here;
`tests/session/test_failing_restore.py` has a probe for each piece, and fails without one.

Context variables are no piece: the restore runs in a copy of the context, whose values replace
those of the session only when it has succeeded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.session.worker import options, randomness
from holdfast.session.worker.circumstances import NAMES
from holdfast.session.worker.kinds.modules import is_made

if TYPE_CHECKING:
    from holdfast.session.worker.labels import Labels
    from holdfast.session.worker.workspace import Workspace

# `Any` below: each piece has a form of its own for its state.

_TRIES = 3  # an interrupt from the keyboard may come while a piece is being put back


class Piece(NamedTuple):
    """One thing that a restore changes."""

    name: str
    take: Callable[[Workspace, Labels], Any]
    put_back: Callable[[Workspace, Labels, Any], None]
    let_go: Callable[[Any], None] | None = None  # after a restore that succeeded


class Taken:
    """The state of all pieces before a restore."""

    def __init__(self, workspace: Workspace, labels: Labels) -> None:
        self._workspace = workspace
        self._labels = labels
        self._states = [(piece, piece.take(workspace, labels)) for piece in PIECES]

    def put_back(self, error: BaseException) -> None:
        """Make every piece what it was, the last first; `error` gets a note about one that
        cannot be. Raises nothing."""
        for piece, state in reversed(self._states):
            for _ in range(_TRIES):
                try:
                    piece.put_back(self._workspace, self._labels, state)
                except KeyboardInterrupt:
                    continue
                except BaseException as failure:  # noqa: BLE001  # a library may fail in any way
                    error.add_note(f"{piece.name}: not as before: {type(failure).__name__}")
                break

    def let_go(self) -> None:
        """The restore has succeeded: end what only the old session needed. Raises nothing."""
        for piece, state in self._states:
            if piece.let_go is not None:
                piece.let_go(state)
        self._states.clear()


def adopt(context: Context) -> None:
    """Give the session the context variables that its restore has set."""
    for variable, value in context.items():
        if variable.get(None) is not value:
            variable.set(value)


def _take_namespace(workspace: Workspace, labels: Labels) -> dict[str, object]:
    return dict(workspace.namespace)


def _put_namespace(workspace: Workspace, labels: Labels, state: dict[str, object]) -> None:
    workspace.namespace.clear()
    workspace.namespace.update(state)


def _take_definitions(workspace: Workspace, labels: Labels) -> Any:
    return workspace.cells.all(), workspace.definitions.state()


def _put_definitions(workspace: Workspace, labels: Labels, state: Any) -> None:
    cells, definitions = state
    workspace.cells.replace(cells)
    workspace.codes.clear()
    workspace.definitions.reset(definitions)


def _take_labels(workspace: Workspace, labels: Labels) -> Any:
    return labels.known_now()


def _put_labels(workspace: Workspace, labels: Labels, state: Any) -> None:
    labels.know_again(state)


def _take_modules(workspace: Workspace, labels: Labels) -> dict[str, Any]:
    return dict(sys.modules)


def _put_modules(workspace: Workspace, labels: Labels, state: dict[str, Any]) -> None:
    """What was imported meanwhile stays loaded; modules that a session made do not."""
    for name, module in list(sys.modules.items()):
        if name not in state and type(module) is type(sys) and is_made(module):
            del sys.modules[name]
    for name, module in state.items():
        if sys.modules.get(name) is not module:
            sys.modules[name] = module


def _take_patches(workspace: Workspace, labels: Labels) -> Any:
    return workspace.definitions.patches.found()


def _put_patches(workspace: Workspace, labels: Labels, state: Any) -> None:
    workspace.definitions.patches.apply(state)


def _take_process(workspace: Workspace, labels: Labels) -> dict[str, Any]:
    around = workspace.definitions.circumstances
    return around.found()[0] if around is not None else {}


def _put_process(workspace: Workspace, labels: Labels, state: dict[str, Any]) -> None:
    around = workspace.definitions.circumstances
    failure: BaseException | None = None
    for name in NAMES if around is not None else ():
        if name == options.FIGURES:
            continue  # a piece of their own
        try:
            assert around is not None
            around.apply(name, state.get(name))
        except Exception as error:  # noqa: BLE001  # the others are put back all the same
            failure = failure or error
    if failure is not None:
        raise failure


def _take_loggers(workspace: Workspace, labels: Labels) -> Any:
    return options.take_loggers()


def _put_loggers(workspace: Workspace, labels: Labels, state: Any) -> None:
    options.put_loggers(state)


def _take_figures(workspace: Workspace, labels: Labels) -> Any:
    return options.take_figures()


def _put_figures(workspace: Workspace, labels: Labels, state: Any) -> None:
    options.put_figures(state)


def _take_randomness(workspace: Workspace, labels: Labels) -> Any:
    return randomness.take()


def _put_randomness(workspace: Workspace, labels: Labels, state: Any) -> None:
    randomness.put_back(state)


PIECES = (
    Piece("namespace", _take_namespace, _put_namespace),
    Piece("definitions", _take_definitions, _put_definitions),
    Piece("labels", _take_labels, _put_labels),
    Piece("modules", _take_modules, _put_modules),
    Piece("patches", _take_patches, _put_patches),
    Piece("process", _take_process, _put_process),
    Piece("loggers", _take_loggers, _put_loggers),
    Piece("figures", _take_figures, _put_figures, options.end_figures),
    Piece("randomness", _take_randomness, _put_randomness),
)
