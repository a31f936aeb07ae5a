"""What looks like a secret, on its way to a model: replaced, and counted."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.secrets import secret
from holdfast.server.mcp.answers import Executed
from holdfast.session.worker.secrets import redact_text

MASK = "<secret>"


class Masks:
    """Counts what it replaces."""

    def __init__(self) -> None:
        self.count = 0

    def text(self, text: str) -> str:
        """Running text: keys of a known format, and `password=...`."""
        masked = redact_text(text)
        self.count += max(0, masked.count(MASK) - text.count(MASK))
        return masked

    def value(self, value: Any, name: object = None) -> Any:
        """Data: texts under a name that says so, and keys of a known format."""
        match value:
            case str() if secret(name, value):
                self.count += 1
                return MASK
            case str():
                return self.text(value)
            case dict():
                return {key: self.value(each, key) for key, each in value.items()}
            case list() | tuple():
                return [self.value(each) for each in value]
        return value


def masked(answer: Executed) -> Executed:
    """What a cell gave, without secrets."""
    masks = Masks()
    error = answer.error
    changed = msgspec.structs.replace(
        answer,
        value=masks.value(answer.value),
        text=masks.text(answer.text),
        stdout=masks.text(answer.stdout),
        stderr=masks.text(answer.stderr),
        error=None
        if error is None
        else msgspec.structs.replace(
            error, message=masks.text(error.message), traceback=masks.text(error.traceback)
        ),
    )
    return msgspec.structs.replace(changed, masked=masks.count)
