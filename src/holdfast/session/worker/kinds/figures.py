"""Parts of figures that belong together: plotly's parts of a figure, and what matplotlib's figures
call when something changes.

plotly pickles a part of a figure as one of its own; matplotlib leaves callbacks out of a pickle,
but for a few. Here a part stays the part of its figure, a colorbar follows its image, and what the
session connected is still called.
"""

from __future__ import annotations

import copyreg
import functools
from types import CellType
from typing import Any

from holdfast.session.worker.kinds.contract import Recorder, Reduce, Reduction
from holdfast.session.worker.missing import Missing, missing_class, set_later
from holdfast.session.worker.placeholder import Placeholder
from holdfast.session.worker.texts import type_module

# `Any` below: both libraries are the user's choice.

# What makes itself known again: windows, their tool bars, and what `pyplot` connects.
_BY_ITSELF = ("matplotlib.backend", "matplotlib._pylab_helpers", "matplotlib.pyplot")


def reduce_callbacks(recorder: Recorder, obj: Any) -> Reduction:
    """A registry of callbacks, with what the session connected, and what ties objects of a figure
    to each other, as a colorbar to its image."""
    state = obj.__getstate__()
    for signal, connected in obj.callbacks.items():
        for number, reference in connected.items():
            function = reference()
            if function is not None and _is_kept(function):
                state["callbacks"].setdefault(signal, {})[number] = function
    return copyreg.__newobj__, (type(obj),), state  # type: ignore[attr-defined]


def _is_kept(function: Any) -> bool:
    if isinstance(function, functools.partial):
        return _is_kept(function.func)
    if getattr(function, "__module__", None) == "__main__":
        return True
    owner = getattr(function, "__self__", None)
    if owner is not None:
        return not type_module(type(owner)).startswith(_BY_ITSELF)
    # A widget calls a function of the session from one of its own.
    cells = getattr(function, "__closure__", None) or ()
    inside = [cell.cell_contents for cell in cells if cell != _EMPTY]
    return any(callable(each) and not isinstance(each, type) and _is_own(each) for each in inside)


def _is_own(function: Any) -> bool:
    if isinstance(function, functools.partial):
        return _is_own(function.func)
    return getattr(function, "__module__", None) == "__main__"


def part(parent: Any, name: str, index: int | None) -> Any:
    """A part of a figure of plotly, or of another part."""
    if isinstance(parent, Placeholder):
        found = missing_class(__name__, "part", "the figure that it is part of is not there")
        return found(parent, name, index)
    found = parent[name]
    return found if index is None else found[index]


def reduce_part(recorder: Recorder, obj: Any) -> Reduction:
    """A trace, a layout, an axis: where its figure has it."""
    if getattr(obj, "_change_callbacks", None):
        recorder.note("functions that follow changes of it are not brought back")
    parent, name = obj._parent, obj._plotly_name
    if parent is None:
        return recorder.plain(obj)
    for step in (name, "data", "frames"):
        place = _place(parent, step, obj)
        if place is not None:
            return part, (parent, *place)
    recorder.note("it is no longer part of a figure")
    return recorder.plain(obj)


def set_frames(made: Any, frames: tuple[Any, ...]) -> None:
    """Give a figure of plotly its frames, which are objects that know of no figure."""
    if isinstance(made, Missing):
        set_later(made, set_frames, frames)
    else:
        made._frame_objs = frames


def reduce_figure(recorder: Recorder, obj: Any) -> Reduction:
    """A figure. Its frames would be copied."""
    reduced = recorder.plain(obj)
    frames = tuple(obj._frame_objs)
    if not frames or type(reduced) is not tuple or len(reduced) != 2:
        return reduced
    made, (props, *rest) = reduced
    props = {name: value for name, value in props.items() if name != "frames"}
    return made, (props, *rest), frames, None, None, set_frames


def _place(parent: Any, name: str, obj: Any) -> tuple[str, int | None] | None:
    try:
        found = parent[name]
    except (KeyError, ValueError, TypeError):
        return None
    if found is obj:
        return name, None
    if type(found) is tuple:
        return next(((name, i) for i, each in enumerate(found) if each is obj), None)
    return None


_EMPTY = CellType()  # equal to each that has nothing in it
BASES: dict[tuple[str, str], Reduce] = {
    ("plotly.basedatatypes", "BasePlotlyType"): reduce_part,
    ("plotly.basedatatypes", "BaseFigure"): reduce_figure,
}
