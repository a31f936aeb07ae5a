"""Placeholders: stand where something could not be brought back, and say why when used."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

# What stands in source for a secret, as a call, and what stood there in older checkpoints.
MARK = "__holdfast_secret__"
OLDER_MARK = "<secret "


class PlaceholderError(RuntimeError):
    """Something that could not be brought back was used."""


class Placeholder:
    """Knows what is missing. Every use but looking at it raises PlaceholderError."""

    __slots__ = ("_holdfast_reason", "_holdfast_record", "_holdfast_secret", "_holdfast_type")

    def __init__(
        self, type_name: str, reason: str, record: bytes = b"", secret: str | None = None
    ) -> None:
        set_ = object.__setattr__
        set_(self, "_holdfast_type", type_name)
        set_(self, "_holdfast_reason", reason)
        set_(self, "_holdfast_record", record)
        set_(self, "_holdfast_secret", secret)

    def __repr__(self) -> str:
        return f"<placeholder for {self._holdfast_type}: {self._holdfast_reason}>"

    def __str__(self) -> str:
        if self._holdfast_secret is not None:
            self._refuse()  # it would go on as another text
        return repr(self)

    def __getattr__(self, name: str) -> NoReturn:
        # Protocol lookups by libraries (copy, pickle, numpy, IPython) expect AttributeError.
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        self._refuse()

    # Sets, dicts and whatever else goes by identity take a placeholder as they take any object.
    __hash__ = object.__hash__

    def _refuse(self) -> NoReturn:
        raise PlaceholderError(
            f"this was a {self._holdfast_type} and could not be brought back: "
            f"{self._holdfast_reason}"
        )


# What the interpreter, or a library, looks up in an object's class to use it.
_PROTOCOLS = """
    setattr delattr call getitem setitem delitem iter next reversed len length_hint contains bool
    enter exit await aiter anext aenter aexit format bytes fspath buffer int float complex index
    round trunc floor ceil neg pos abs invert eq ne lt le gt ge copy deepcopy reduce reduce_ex
    getstate array dataframe arrow_c_stream arrow_c_array
"""
_BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or"


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Placeholder, *args: object, **options: object) -> NoReturn:
        self._refuse()

    refuse.__name__ = name
    refuse.__qualname__ = f"Placeholder.{name}"
    return refuse


for _name in (
    *_PROTOCOLS.split(),
    *(f"{side}{name}" for name in _BINARY.split() for side in ("", "r", "i")),
):
    setattr(Placeholder, f"__{_name}__", _refusal(f"__{_name}__"))
del _name


def describe(placeholder: Placeholder) -> tuple[str, str, bytes, str | None]:
    """What a placeholder knows: type, reason, the record it came from, the secret's name."""
    get = object.__getattribute__
    return (
        get(placeholder, "_holdfast_type"),
        get(placeholder, "_holdfast_reason"),
        get(placeholder, "_holdfast_record"),
        get(placeholder, "_holdfast_secret"),
    )


class LeftOut:
    """Stands for a secret in what is pickled, at the one place where it was found."""

    __slots__ = ("binary", "name")

    def __init__(self, name: str, binary: bool) -> None:
        self.name = name
        self.binary = binary
