"""Subjects: the things that have state, written `kind/name`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast, get_args

from holdfast.model.errors import BadInput

Kind = Literal["state", "session", "sandbox", "container", "bundle"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# `~` starts an ancestor step, `@` a tag, and whitespace or control characters confuse people
# and shells; everything else that somebody may name a thing is allowed.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~@^:\\*?\[\]]")
_HALF = re.compile(r"[\ud800-\udfff]")  # half a character: no UTF-8 can hold it
MAX_NAME = 255


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """A thing with state. Its name may have several segments: `container/default/tc`."""

    kind: Kind
    name: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(
                f"unknown kind of subject: {self.kind!r}", hint=f"one of {', '.join(KINDS)}"
            )
        segments = self.name.split("/")
        if (
            not self.name
            or len(self.name.encode("utf-8", "surrogatepass")) > MAX_NAME
            or _HALF.search(self.name)
            or _FORBIDDEN.search(self.name)
            or any(segment in ("", ".", "..") for segment in segments)
        ):
            raise BadInput(
                f"bad subject name: {self.name!r}",
                hint="1 to 255 bytes; no spaces, control characters or any of ~ @ ^ : \\ * ? [ ],"
                " and no empty part, . or .. between slashes",
            )

    @staticmethod
    @lru_cache(maxsize=4096)  # the same few subjects are read from the log again and again
    def parse(text: str) -> Subject:
        """Read `kind/name`; raises BadInput."""
        kind, slash, name = text.partition("/")
        if not slash:
            raise BadInput(
                f"not a subject: {text!r}", hint="a subject is kind/name, e.g. session/analysis"
            )
        return Subject(cast(Kind, kind), name)

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"
