"""The states of random generators that belong to libraries, not to variables.

That of numpy is in a part of it which takes a tenth of numpy's own time to load, and which most
cells that follow a restore do not need: where it is not loaded yet, its state waits for it.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from holdfast.session.worker.loading import Loading

# `Any` below: each library has a form of its own for its state.

_NUMPY = "numpy.random"
_MODULES = {"random": "random", "numpy": _NUMPY, "torch": "torch"}
_WORDS = 2496  # bytes of the state of numpy's usual generator
_waiting: list[Any] = []  # the state of numpy's generator, while that is not loaded


_first: dict[str, Any] = {}  # what a library had, of those that were loaded since `take`


class Taken(NamedTuple):
    """The generators as they were."""

    modules: dict[str, Any]  # by library, the module that has it
    states: dict[str, Any]
    waiting: list[Any]


def take() -> Taken:
    """The states of all generators that are there, for `put_back`."""
    _first.clear()
    modules = {
        name: sys.modules[module] for name, module in _MODULES.items() if module in sys.modules
    }
    return Taken(
        modules, {name: _read(name, module) for name, module in modules.items()}, [*_waiting]
    )


def put_back(taken: Taken) -> None:
    """Set all generators as they were; one that was loaded meanwhile, as it was then."""
    states = _first | taken.states
    forget()
    for name, state in states.items():
        module = taken.modules.get(name) or sys.modules.get(_MODULES[name])
        if module is not None and state is not None:
            _write(name, module, state)
    if taken.waiting and _NUMPY in sys.modules:
        sys.modules[_NUMPY].set_state(_unpacked(taken.waiting[-1]))
    elif taken.waiting:
        _waiting.extend(taken.waiting)
        _loading.wait_for({_NUMPY})
    _first.clear()


def _loaded(name: str) -> None:
    if _waiting:
        _first.setdefault("numpy", sys.modules[name].get_state())
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

        _first.setdefault("random", random.getstate())
        random.setstate(state)
    elif library == "numpy":
        _set_numpy(state)
    elif library == "torch":
        import torch

        _first.setdefault("torch", torch.get_rng_state())
        if type(state) is bytes:
            state = torch.frombuffer(bytearray(state), dtype=torch.uint8)
        torch.set_rng_state(state)


def _read(library: str, module: Any) -> Any:
    """The state of a library's generator; None where a session's own module has that name."""
    ask = {"random": "getstate", "numpy": "get_state", "torch": "get_rng_state"}[library]
    return getattr(module, ask)() if hasattr(module, ask) else None


def _write(library: str, module: Any, state: Any) -> None:
    tell = {"random": "setstate", "numpy": "set_state", "torch": "set_rng_state"}[library]
    getattr(module, tell)(state)


def _set_numpy(state: Any) -> None:
    import numpy

    forget()
    if _NUMPY not in sys.modules and _is_usual(state):  # nothing can be wrong with it later
        _waiting.append(state)
        _loading.wait_for({_NUMPY})
    else:
        _first.setdefault("numpy", numpy.random.get_state())
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
