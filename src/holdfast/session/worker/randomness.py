"""The states of random generators that belong to libraries, not to variables."""

from __future__ import annotations

import sys
from typing import Any

# `Any` below: each library has a form of its own for its state.


def loaded() -> tuple[str, ...]:
    """Libraries whose generator is there, and a part of which is loaded only for its sake."""
    return ("numpy",) if "numpy.random" in sys.modules else ()


def states(imports: dict[str, str]) -> dict[str, Any]:
    """By library, the state of its global generator, for libraries that are loaded.

    To be read before a fork: `os.fork` seeds `random` anew in the child.
    """
    found: dict[str, Any] = {}
    if "random" in imports and "random" in sys.modules:
        found["random"] = sys.modules["random"].getstate()
    if "numpy.random" in sys.modules:
        found["numpy"] = _plain(sys.modules["numpy.random"].get_state())
    if "torch" in sys.modules:
        found["torch"] = sys.modules["torch"].get_rng_state()
    return found


def _plain(state: Any) -> Any:
    """A state of numpy as plain data, which is pickled in no time, where it has the usual form."""
    if type(state) is not tuple or len(state) != 5:
        return state  # of another kind of generator
    kind, words, *rest = state
    return (kind, words.astype("<u4").tobytes(), *rest)


def set_state(library: str, state: Any) -> None:
    """Set one of them again. Raises what the library raises, ImportError when it is missing."""
    if library == "random":
        import random

        random.setstate(state)
    elif library == "numpy":
        import numpy

        if type(state) is tuple and type(state[1]) is bytes:
            kind, words, *rest = state
            state = (kind, numpy.frombuffer(words, "<u4"), *rest)
        numpy.random.set_state(state)
    elif library == "torch":
        import torch  # type: ignore[import-not-found]

        torch.set_rng_state(state)
