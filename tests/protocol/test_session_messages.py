"""Session messages: names of the spec, round trips, and what a host refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from holdfast.model.errors import Corrupt
from holdfast.protocol import session_messages as messages
from holdfast.protocol.session_messages import (
    CheckpointMessage,
    ErrorMessage,
    ExecuteMessage,
    ReadyMessage,
    ResultMessage,
    decode_host,
    decode_worker,
    frame,
)


def all_messages() -> dict[str, type[messages.Message]]:
    return {cls.__name__: cls for cls in messages.Message.__subclasses__()}


def test_the_spec_lists_every_message_and_its_fields(repository: Path) -> None:
    spec = (repository / "spec" / "session-v1.md").read_text()
    rows = re.findall(r"^\| `(\w+Message)` \| [^|]+ \| (.*) \|$", spec, re.MULTILINE)
    assert {name for name, _ in rows} == set(all_messages())
    for name, fields in rows:
        named = set(re.findall(r"`(\w+)`", fields.split("(")[0] + fields.partition(")")[2]))
        assert named == {field.name for field in msgspec.structs.fields(all_messages()[name])}, name


def schema_of_the_types() -> dict[str, object]:
    """What `section "session"` of the schema has to be for these types."""
    _, found = msgspec.json.schema_components(
        all_messages().values(), ref_template="#/$defs/session/$defs/{name}"
    )
    for schema in found.values():
        del schema["title"]
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
        for field in schema.get("properties", {}).values():
            if "enum" in field and len(field["enum"]) == 1:  # `type`, which tells them apart
                (field["const"],) = field.pop("enum")
    plain: dict[str, object] = json.loads(json.dumps(found))
    return dict(sorted(plain.items()))


def in_one_order(schema: object) -> object:
    """The schema with each `anyOf` sorted, because versions of msgspec order it differently."""
    if isinstance(schema, dict):
        ordered = {name: in_one_order(each) for name, each in schema.items()}
        if "anyOf" in ordered:
            ordered["anyOf"] = sorted(ordered["anyOf"], key=json.dumps)
        return ordered
    return [in_one_order(each) for each in schema] if isinstance(schema, list) else schema


def test_the_types_are_those_of_the_schema(repository: Path) -> None:
    schema = json.loads((repository / "spec/messages.schema.json").read_text())
    expected = schema_of_the_types()
    assert in_one_order(schema["$defs"]["session"]["$defs"]) == in_one_order(expected), (
        f'section "session" should be\n{json.dumps(expected, indent=2)}'
    )


def test_what_is_sent_fits_the_schema(repository: Path) -> None:
    import jsonschema  # takes seconds, which no other test should wait for

    schema = json.loads((repository / "spec/messages.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    examples: list[messages.Message] = [
        ExecuteMessage(execution_id=1, code="1"),
        messages.OutputMessage(execution_id=1, stream="stderr", text="x"),
        messages.RestoreMessage(request_id=2, checkpoint_id="/data/file", secrets={"a": "b"}),
        CheckpointMessage(request_id=3, stage="load"),
        ResultMessage(
            execution_id=1,
            execution_count=1,
            duration=0.1,
            error=ErrorMessage(error_type="E", message="m"),
        ),
        messages.CheckpointCreatedMessage(
            request_id=3, items=(messages.ItemReport(name="x", outcome="exact"),)
        ),
    ]
    for example in examples:
        fitting = {"$ref": f"#/$defs/session/$defs/{type(example).__name__}", **schema}
        value = json.loads(msgspec.json.encode(example))
        jsonschema.Draft202012Validator(fitting).validate(value)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(fitting).validate({**value, "type": "Another"})


def test_round_trip() -> None:
    message = ExecuteMessage(execution_id=3, code="1 + 1")
    assert decode_host(frame(message)[4:]) == message
    result = ResultMessage(
        execution_id=3,
        execution_count=1,
        duration=0.5,
        error=ErrorMessage(error_type="ValueError", message="no"),
    )
    assert decode_worker(frame(result)[4:]) == result


def test_unknown_fields_are_ignored_and_missing_ones_have_defaults() -> None:
    raw = msgspec.msgpack.encode({"type": "CheckpointMessage", "request_id": 1, "later": [1]})
    assert decode_host(raw) == CheckpointMessage(request_id=1)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xff",
        msgspec.msgpack.encode({"type": "Nothing"}),
        msgspec.msgpack.encode({"type": "ReadyMessage", "pid": "text", "python": "3"}),
        msgspec.msgpack.encode([1, 2]),
        frame(ExecuteMessage(execution_id=1, code=""))[4:],  # a worker does not say this
        b"\x81\xa4type" * 50,
    ],
)
def test_a_host_refuses_what_no_worker_says(payload: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_worker(payload)


def test_a_worker_refuses_what_no_host_says() -> None:
    with pytest.raises(Corrupt):
        decode_host(frame(ReadyMessage(pid=1, python="3.11"))[4:])
