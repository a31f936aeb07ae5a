"""The states of random generators that belong to libraries, not to variables.

That of numpy is in a part of it which takes a tenth of numpy's own time to load, and which most
cells that follow a restore do not need: where it is not loaded yet, its state waits for it.
"""

from __future__ import annotations

import sys
from typing import Any

from holdfast.session.worker.loading import Loading

# `Any` below: each library has a form of its own for its state.

_NUMPY = "numpy.random"
_WORDS = 2496  # bytes of the state of numpy's usual generator
_waiting: list[Any] = []  # the state of numpy's generator, while that is not loaded


def _loaded(name: str) -> None:
    if _waiting:
        sys.modules[name].set_state(_unpacked(_waiting.pop()))


_loading = Loading(_loaded)


def states(imports: dict[str, str]) -> dict[str, Any]:
    """By library, the state of its global generator, for libraries that are loaded.

    To be read before a fork: `os.fork` seeds `random` anew in the child.
    """
    found: dict[str, Any] = {}
    if "random" in imports and hasattr(sys.modules.get("random"), "getstate"):
        found["random"] = sys.modules["random"].getstate()  # a session may have its own module
    if _waiting:
        found["numpy"] = _waiting[-1]
    elif _NUMPY in sys.modules:
        found["numpy"] = _packed(sys.modules[_NUMPY].get_state())
    if "torch" in sys.modules:
        # Its storage would be pickled with its address, which is another one each time.
        found["torch"] = sys.modules["torch"].get_rng_state().numpy().tobytes()
    return found


def forget() -> None:
    """What waits is of a namespace that is no more."""
    _waiting.clear()


def set_state(library: str, state: Any) -> None:
    """Set one of them again. Raises what the library raises, ImportError when it is missing."""
    if library == "random":
        import random

        random.setstate(state)
    elif library == "numpy":
        _set_numpy(state)
    elif library == "torch":
        import torch

        if type(state) is bytes:
            state = torch.frombuffer(bytearray(state), dtype=torch.uint8)
        torch.set_rng_state(state)


def _set_numpy(state: Any) -> None:
    import numpy

    forget()
    if _NUMPY not in sys.modules and _is_usual(state):  # nothing can be wrong with it later
        _waiting.append(state)
        _loading.wait_for({_NUMPY})
    else:
        numpy.random.set_state(_unpacked(state))


def _packed(state: Any) -> Any:
    """A state of numpy as plain data, which is pickled in no time, where it has the usual form."""
    if type(state) is not tuple or len(state) != 5:
        return state  # of another kind of generator
    kind, words, *rest = state
    return (kind, words.astype("<u4").tobytes(), *rest)


def _unpacked(state: Any) -> Any:
    """The inverse."""
    if type(state) is not tuple or type(state[1]) is not bytes:
        return state
    import numpy

    kind, words, *rest = state
    return (kind, numpy.frombuffer(words, "<u4"), *rest)


def _is_usual(state: Any) -> bool:
    """Whether it is, by its form, a state of the generator that numpy begins with."""
    if type(state) is not tuple or [*map(type, state)] != [str, bytes, int, int, float]:
        return False
    kind, words, at, *_ = state
    return kind == "MT19937" and len(words) == _WORDS and 0 <= at <= _WORDS // 4
