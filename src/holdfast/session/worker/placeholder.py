"""Placeholders: stand where something could not be brought back, and say why when used."""

from __future__ import annotations

from typing import NoReturn


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

    def __getattr__(self, name: str) -> NoReturn:
        # Protocol lookups by libraries (copy, pickle, numpy, IPython) expect AttributeError.
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        self._refuse()

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        self._refuse()

    def __getitem__(self, key: object) -> NoReturn:
        self._refuse()

    def __setitem__(self, key: object, value: object) -> NoReturn:
        self._refuse()

    def __iter__(self) -> NoReturn:
        self._refuse()

    def __len__(self) -> NoReturn:
        self._refuse()

    def __bool__(self) -> NoReturn:
        self._refuse()

    def __enter__(self) -> NoReturn:
        self._refuse()

    def __exit__(self, *error: object) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise PlaceholderError(
            f"this was a {self._holdfast_type} and could not be brought back: "
            f"{self._holdfast_reason}"
        )


def describe(placeholder: Placeholder) -> tuple[str, str, bytes, str | None]:
    """What a placeholder knows: type, reason, the record it came from, the secret's name."""
    get = object.__getattribute__
    return (
        get(placeholder, "_holdfast_type"),
        get(placeholder, "_holdfast_reason"),
        get(placeholder, "_holdfast_record"),
        get(placeholder, "_holdfast_secret"),
    )
