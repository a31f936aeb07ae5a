"""The builtins as they were before the session changed any: the worker itself runs with them.

A session may put anything in place of a builtin (`builtins.open = mine`), and code of libraries
must see that, but the worker's own work must not fail because of it. So there are two phases: in
the session's, builtins are what the session made them; in the worker's, they are what they were at
the start. The worker enters its phase with each message, and the session's around code of cells.

What `Patches.aside` does for modules of the library takes longer, and is done for captures and
restores only.

Nothing here may use a builtin, since any of them may have been replaced: only methods, operators,
and what is bound to a name of this module.
"""

from __future__ import annotations

import builtins
from operator import is_, itemgetter
from types import BuiltinFunctionType
from typing import Any

# `Any` below: builtins are of every type.

_map = map
_LIVE = builtins.__dict__
_NAMES = tuple(
    name
    for name, value in _LIVE.items()
    if type(value) is BuiltinFunctionType
    or (isinstance(value, type) and not issubclass(value, BaseException))
)
_KeyError = KeyError
ABSENT: Any = object()  # stands for a name that the session has deleted


class Phase:
    """A block that runs with the builtins of the one or of the other; blocks may be nested."""

    __slots__ = ("_before", "_originals", "_own")

    def __init__(self, originals: Originals, own: bool) -> None:
        self._originals = originals
        self._own = own
        self._before: list[bool] = []

    def __enter__(self) -> None:
        originals = self._originals
        self._before.append(originals.own)
        if originals.own is not self._own:
            originals.switch()

    def __exit__(self, *raised: object) -> None:
        if self._originals.own is not self._before.pop():
            self._originals.switch()


class Originals:
    """The builtins at the moment when this is made, which begins in the session's phase."""

    def __init__(self) -> None:
        names = tuple(name for name in _NAMES if name in _LIVE)
        self._of = itemgetter(*names)
        self._known: dict[str, Any] = dict(zip(names, self._of(_LIVE), strict=True))
        self._before = tuple(self._known.values())
        self.own = False  # whether it is the worker's phase
        self.theirs: dict[str, Any] = {}  # in that: what the session has in place of an original
        self.worker = Phase(self, True)
        self.session = Phase(self, False)

    def switch(self) -> None:
        """Go from one phase to the other."""
        if self.own:
            self.own = False
            for name, value in self.theirs.items():
                _LIVE[name] = value
            self.theirs.clear()
            return
        self.own = True
        try:
            if False not in _map(is_, self._of(_LIVE), self._before):
                return  # as nearly always
        except _KeyError:
            pass  # one was deleted
        for name, value in self._known.items():
            now = _LIVE.get(name, ABSENT)
            if now is not value:
                _LIVE[name] = value
                if now is not ABSENT:  # what is gone comes back
                    self.theirs[name] = now

    def take_over(self, name: str) -> None:
        """What the worker itself has put there now is the original."""
        self._known[name] = _LIVE[name]
        self._before = tuple(self._known.values())

    def put(self, name: str, value: Any) -> None:
        """Give the session a builtin, or take one away, in either phase."""
        if self.own and name in self._known:
            if value is self._known[name] or value is ABSENT:
                self.theirs.pop(name, None)
            else:
                self.theirs[name] = value
        elif value is ABSENT:
            _LIVE.pop(name, None)
        else:
            _LIVE[name] = value
