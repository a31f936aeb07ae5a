"""Callbacks of matplotlib's figures and axes: those of the session are kept, too.

matplotlib itself leaves callbacks out of a pickle, but for its own.
"""

from __future__ import annotations

import copyreg
from typing import Any

from holdfast.session.worker.kinds.contract import Recorder, Reduction


# `Any`: matplotlib is the user's choice.
def reduce_callbacks(recorder: Recorder, obj: Any) -> Reduction:
    """A registry of callbacks, with what the session connected."""
    state = obj.__getstate__()
    for signal, connected in obj.callbacks.items():
        for number, reference in connected.items():
            function = reference()
            if getattr(function, "__module__", None) == "__main__":
                state["callbacks"].setdefault(signal, {})[number] = function
    return copyreg.__newobj__, (type(obj),), state  # type: ignore[attr-defined]
