"""What running a cell gives: values that carry no reference to the worker."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Self

from holdfast.protocol.session_messages import ErrorMessage, ResultMessage
from holdfast.protocol.values import decode_plain, encode_plain


class Repr(str):
    """The repr of a value that is no plain data, with the name of its type."""

    __slots__ = ("type_name",)
    type_name: str

    def __new__(cls, text: str, type_name: str) -> Repr:
        made = super().__new__(cls, text)
        made.type_name = type_name
        return made


class Prompt(str):
    """What `input()` asks for; `password` when what is typed should not be seen."""

    __slots__ = ("password",)
    password: bool

    def __new__(cls, text: str, password: bool) -> Prompt:
        made = super().__new__(cls, text)
        made.password = password
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """What a cell raised, or what ended it."""

    type: str
    message: str
    traceback: str = ""
    hint: str = ""  # what to do about a worker that is gone

    @classmethod
    def of(cls, message: ErrorMessage) -> ErrorInfo:
        return cls(type=message.error_type, message=message.message, traceback=message.traceback)

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type

    def __repr__(self) -> str:
        return f"<ErrorInfo {self}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished cell. `value` is plain data, or a `Repr` of anything else."""

    value: object = None
    type_name: str = "NoneType"
    stdout: str = ""
    stderr: str = ""
    error: ErrorInfo | None = None
    duration: float = 0.0
    execution_count: int = 0
    truncated: bool = False  # whether output beyond the limit was dropped
    # The checkpoint that the session went back to before this cell, because its worker had died.
    resumed_from: str | None = None

    @property
    def ok(self) -> bool:
        return self.error is None

    def check(self) -> Self:
        """This result, unless there is an error in it: raises CellFailed."""
        if self.error is not None:
            from holdfast.session.errors import CellFailed

            raise CellFailed(self.error, self)
        return self

    def __repr__(self) -> str:
        value = _cut(self.value) if isinstance(self.value, Repr) else _short(self.value)
        said = [str(self.error) if self.error is not None else value]
        said += [
            f"{name} {_short(text)}"
            for name, text in (("stdout", self.stdout), ("stderr", self.stderr))
            if text
        ]
        return f"<Result {', '.join(said)}>"


_shortener = reprlib.Repr()
_shortener.maxstring = _shortener.maxother = 80
_short = _shortener.repr


def _cut(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def message_of(result: Result, execution_id: int) -> ResultMessage:
    """A result for a client, as a worker would have sent it."""
    error, value = result.error, result.value
    shown = isinstance(value, Repr)
    return ResultMessage(
        execution_id=execution_id,
        execution_count=result.execution_count,
        duration=result.duration,
        value=None if shown else encode_plain(value, None),
        type_name=result.type_name,
        text=str(value) if shown else "",
        error=None
        if error is None
        else ErrorMessage(error_type=error.type, message=error.message, traceback=error.traceback),
    )


def value_of(message: ResultMessage) -> object:
    """The value of a result. Raises Corrupt."""
    if message.value is not None:
        return decode_plain(message.value)
    return Repr(message.text, message.type_name) if message.text else None
