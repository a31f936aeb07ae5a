"""What clients send: the documented frames, and anything else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.frames import first_frames, frames

from holdfast.model.errors import BadInput
from holdfast.protocol.sandbox_flow import Fact
from holdfast.protocol.sandbox_messages import (
    CheckpointRequest,
    CreateRequest,
    ExecuteRequest,
    KillSandboxRequest,
    ReconnectRequest,
    SnapshotRequest,
    StdinEvent,
    WindowRequest,
)
from holdfast.protocol.sandbox_requests import MAX_FRAME, Refusal, parse_create, parse_request


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ({"action": "checkpoint"}, CheckpointRequest),
        ({"action": "snapshot_filesystem", "name": "base"}, SnapshotRequest),
        ({"action": "kill_sandbox"}, KillSandboxRequest),
        ({"action": "reconnect"}, ReconnectRequest),
        ({"action": "window", "until": 1}, WindowRequest),
        ({"event": "stdin", "data": "x\n"}, StdinEvent),
        ({"language": "python", "code": "print(1)"}, ExecuteRequest),
        ({"language": "bash", "code": ""}, ExecuteRequest),
        ({"argv": ["ls", "-l"], "newer": 1}, ExecuteRequest),
    ],
)
def test_the_documented_frames(frame: dict[str, object], kind: type) -> None:
    assert isinstance(parse_request(json.dumps(frame)), kind)


@pytest.mark.parametrize(
    ("frame", "fact"),
    [
        ({"language": "cobol", "code": "x"}, Fact.LANGUAGE_UNKNOWN),
        ({"language": "cobol"}, Fact.LANGUAGE_UNKNOWN),
        ({"language": "python"}, Fact.EXECUTION_REFUSED),
        ({"code": "print(1)"}, Fact.EXECUTION_REFUSED),
        ({}, Fact.EXECUTION_REFUSED),
        ({"language": "python", "code": 5}, Fact.EXECUTION_REFUSED),
        ({"argv": []}, Fact.EXECUTION_REFUSED),
        ({"event": "stdin"}, Fact.STDIN_REFUSED),
        ({"event": "stdin", "data": 1}, Fact.STDIN_REFUSED),
        ({"action": "snapshot_filesystem"}, Fact.SNAPSHOT_FAILED),
        ({"action": "window", "until": -1}, None),
        ({"action": "dance"}, None),
        ({"action": []}, None),
        ([1, 2], None),
    ],
)
def test_what_is_refused_and_how(frame: object, fact: Fact | None) -> None:
    refusal = parse_request(json.dumps(frame))
    assert isinstance(refusal, Refusal)
    assert refusal.fact is fact


def test_a_refusal_names_its_request() -> None:
    refusal = parse_request('{"event": "stdin", "request_id": "7"}')
    assert isinstance(refusal, Refusal)
    assert refusal.request_id == "7"


def test_frames_that_are_too_long_or_no_json() -> None:
    for frame in ("", "{", "nul", b"\xff\xfe", "[" * 100_000, "x" * (MAX_FRAME + 1)):
        assert isinstance(parse_request(frame), Refusal)


def test_a_create_frame_may_hold_the_truthy_options_only() -> None:
    asked = parse_create('{"enable_checkpoint": true}')
    assert (asked.idle_timeout, asked.enable_checkpoint) == (300, True)
    assert parse_create("{}").filesystem_snapshot_name is None


@pytest.mark.parametrize(
    "frame",
    [
        {"enable_sandbox_handoff": True},
        {"enable_idle_timeout_auto_checkpoint": True},
        {"idle_timeout": 0},
        {"idle_timeout": "soon"},
        {"limits": {"memory_bytes": -1}},
        {"network": "yes"},
        "x",
    ],
)
def test_impossible_sandboxes_are_refused(frame: object) -> None:
    with pytest.raises(BadInput):
        parse_create(json.dumps(frame))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
NAMES = ["action", "event", "language", "code", "argv", "data", "name", "count", "rows", "offset"]
WORDS = ["checkpoint", "stdin", "python", "fork", "files", "resize", "reconnect", "window"]


@given(st.binary() | st.text())
def test_no_frame_raises(frame: bytes | str) -> None:
    assert parse_request(frame) is not None


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(WORDS) | json_values))
def test_no_object_raises(fields: dict[str, object]) -> None:
    assert parse_request(json.dumps(fields)) is not None


@given(frames)
def test_no_request_raises(frame: bytes | str) -> None:
    assert parse_request(frame) is not None


@given(first_frames)
def test_a_first_frame_is_used_or_refused(frame: bytes | str) -> None:
    try:
        asked = parse_create(frame)
    except BadInput:
        return
    assert isinstance(asked, CreateRequest)
    assert asked.idle_timeout > 0
    assert asked.enable_checkpoint or not asked.enable_sandbox_handoff
