"""numpy, loaded when it is first used: whoever only looks at the log needs no arrays, and loading
numpy takes longer than everything else that a short command does."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["np"]

if TYPE_CHECKING:
    import numpy as np
else:

    class _Numpy(ModuleType):
        def __getattr__(self, name: str) -> object:
            import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)  # from now on it is found without us
            return value

    np = _Numpy("numpy")
