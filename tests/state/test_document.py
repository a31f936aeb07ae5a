"""Documents: complete, of their session, of a known version, or refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.model.errors import Corrupt, Unsupported
from holdfast.state import document
from holdfast.state.document import MIGRATIONS, SCHEMA_VERSION, from_bytes, from_raw, to_bytes

RAW: dict[str, Any] = {
    "session_id": "s",
    "timestamp": "2026-01-02T03:04:05.000006Z",
    "reason": "manual",
    "stage": "unknown",
    "state_info": {"a": [1, {"b": None}]},
    "parent_session": None,
    "schema_version": SCHEMA_VERSION,
}


def test_there_and_back() -> None:
    made = from_raw({**RAW, "typed": False}, "s")
    assert from_bytes(to_bytes(made), "s") == made
    assert to_bytes(made).endswith(b"\n}\n")


def test_every_shorter_file_is_refused() -> None:
    whole = to_bytes(from_raw(RAW, "s"))
    for size in range(len(whole) - 1):
        with pytest.raises(Corrupt):
            from_bytes(whole[:size], "s")


@pytest.mark.parametrize("name", ["session_id", "timestamp", "reason", "stage", "state_info"])
def test_every_agreed_field_is_needed(name: str) -> None:
    with pytest.raises(Corrupt):
        from_raw({key: value for key, value in RAW.items() if key != name}, "s")
    with pytest.raises(Corrupt):
        from_raw({**RAW, name: 7}, "s")


def test_fields_of_later_days_are_ignored() -> None:
    assert from_raw({**RAW, "new": 1}, "s") == from_raw(RAW, "s")


@pytest.mark.parametrize("data", [b"[]", b"null", b"\x00" * 100, b"\xff", b"[" * 100_000])
def test_what_is_no_document(data: bytes) -> None:
    with pytest.raises(Corrupt):
        from_bytes(data, "s")


def test_of_another_session() -> None:
    with pytest.raises(Corrupt, match="'s'"):
        from_raw(RAW, "t")


def test_versions() -> None:
    assert sorted(MIGRATIONS) == list(range(SCHEMA_VERSION))
    with pytest.raises(Unsupported):
        from_raw({**RAW, "schema_version": SCHEMA_VERSION + 1}, "s")
    for version in (-1, "1", None):
        with pytest.raises(Corrupt):
            from_raw({**RAW, "schema_version": version}, "s")


def test_a_new_document_has_the_time_it_is_given() -> None:
    made = document.new(session_id="s", reason="r", stage="x", state_info={}, parent_session=None)
    again = made.at(from_raw(RAW, "s").time)
    assert again.timestamp == RAW["timestamp"]
    assert msgspec.json.decode(to_bytes(again))["schema_version"] == SCHEMA_VERSION
