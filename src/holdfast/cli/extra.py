"""Commands that need more than the library: what is missing is said in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Import what comes with an extra. Raises Unsupported when it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "holdfast":
            raise
        from holdfast.model.errors import Unsupported

        raise Unsupported(
            f"{what} needs {package}", hint=f"pip install 'holdfast[{name}]'"
        ) from None
