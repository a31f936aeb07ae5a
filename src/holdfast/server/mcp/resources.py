"""Checkpoints as resources: `checkpoint://{subject}/{id}`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote

from holdfast.model.errors import BadInput
from holdfast.model.subject import Subject

SCHEME = "checkpoint://"
TEMPLATE = "checkpoint://{subject}/{id}"
MOST_LISTED = 50


@dataclass(frozen=True, slots=True)
class Address:
    """Which checkpoint of which subject."""

    subject: Subject
    reference: str

    @classmethod
    def parse(cls, uri: str) -> Self:
        """The subject may be written with its slash or with `%2F`. Raises BadInput."""
        subject, slash, reference = uri.removeprefix(SCHEME).rpartition("/")
        if not uri.startswith(SCHEME) or not slash or not reference:
            raise BadInput(
                f"not a checkpoint's address: {uri!r:.200}",
                hint=f"{TEMPLATE}, e.g. checkpoint://session/main/0198c0de",
            )
        return cls(Subject.parse(unquote(subject)), unquote(reference))
