"""The reference of sessions names every option and every public member."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from holdfast.session import Result, Session, SessionCheckpoint, SessionPool


def names_of(kind: type) -> set[str]:
    members = {name for name in vars(kind) if not name.startswith("_")}
    fields = {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    options = set() if fields else set(inspect.signature(kind).parameters)
    return members | fields | options


@pytest.mark.parametrize("kind", [Session, SessionPool, Result, SessionCheckpoint])
def test_every_name_is_there(repository: Path, kind: type) -> None:
    text = (repository / "docs/reference/sessions.md").read_text()
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))))
    assert names_of(kind) - named == set()
