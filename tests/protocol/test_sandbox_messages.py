"""The schema, and the types that are made from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec

from holdfast.protocol import sandbox_messages as messages


def test_the_python_types_are_current(repository: Path) -> None:
    script = repository / "scripts/generate-messages"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_we_write_fits_the_schema(repository: Path) -> None:
    import jsonschema  # takes seconds, which no other test should wait for

    schema = json.loads((repository / "spec/messages.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    examples: list[msgspec.Struct] = [
        messages.StatusUpdate(
            event="status_update", status=messages.Status.RUNNING, message="The sandbox is running"
        ),
        messages.OutputEvent(event="stdout", data="x", offset=1),
        messages.ExitEvent(event="exit", code=0),
        messages.ExecuteRequest(language="python", code="1", env={"A": "b"}),
        messages.CreateRequest(limits=messages.Limits(cpus=0.5)),
        messages.FilesEvent(
            event="files",
            verb="list",
            path="/",
            entries=(messages.FileEntry(name="a", kind="file", size=1, mode=0o644, modified=1.5),),
        ),
    ]
    for example in examples:
        fitting = {"$ref": f"#/$defs/sandbox/$defs/{type(example).__name__}", **schema}
        value = json.loads(msgspec.json.encode(example))
        jsonschema.Draft202012Validator(fitting).validate(value)
        assert msgspec.convert(value, type(example)) == example
