"""JSON schemas: how they are put together, and those of what is looked at closer."""

from __future__ import annotations

from typing import get_args

from holdfast.model.report import Outcome
from holdfast.model.subject import KINDS

Schema = dict[str, object]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
ARCHIVE: Schema = {"type": "string", "format": "binary"}
OUTCOME: Schema = {"enum": list(get_args(Outcome))}


def maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def listed(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def shaped(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_CHANGE: Schema = {"enum": ["added", "removed", "changed"]}
_GROWTH = shaped(time=TEXT, checkpoints=COUNT, content_bytes=COUNT, stored_bytes=COUNT)

MORE: dict[str, Schema] = {
    "ValueChange": {
        "type": "object",
        "properties": {"part": TEXT, "path": TEXT, "before": ANYTHING, "after": ANYTHING},
        "required": ["part", "path"],
    },
    "VariableChange": shaped(
        name=TEXT, change=_CHANGE, before=maybe(named("Item")), after=maybe(named("Item"))
    ),
    "Array": shaped(
        shape=listed(COUNT),
        dtype=TEXT,
        looked_at=COUNT,
        minimum=maybe(NUMBER),
        maximum=maybe(NUMBER),
        mean=maybe(NUMBER),
        missing=COUNT,
        series=listed(NUMBER),
        histogram=listed(COUNT),
    ),
    "Variable": shaped(
        name=TEXT, type=TEXT, text=TEXT, source=maybe(TEXT), array=maybe(named("Array"))
    ),
    "File": shaped(
        path=TEXT, kind={"enum": ["file", "folder", "link", "deleted"]}, size=COUNT, time=NUMBER
    ),
    "Memory": shaped(size=COUNT, images=COUNT, processes=COUNT),
    "Content": shaped(
        variables=maybe(listed(named("Variable"))),
        state=ANYTHING,
        has_state=FLAG,
        files=maybe(listed(named("File"))),
        more_files=FLAG,
        memory=maybe(named("Memory")),
        versions={"type": "object", "additionalProperties": TEXT},
    ),
    "Usage": shaped(
        store=TEXT,
        subjects=COUNT,
        checkpoints=COUNT,
        content_bytes=COUNT,
        chunks=COUNT,
        unique_bytes=COUNT,
        packs=COUNT,
        packs_bytes=COUNT,
        log_bytes=COUNT,
        disk_bytes=COUNT,
        dedup_ratio=maybe(NUMBER),
        prune_would_remove=COUNT,
        prune_would_free_bytes=COUNT,
    ),
    "Health": shaped(
        usage=named("Usage"),
        kinds=listed(
            shaped(
                kind={"enum": list(KINDS)},
                subjects=COUNT,
                checkpoints=COUNT,
                content_bytes=COUNT,
                stored_bytes=COUNT,
            )
        ),
        over_time=listed(_GROWTH),
        verified=maybe(shaped(time=TEXT, ok=FLAG, deep=FLAG, problems=COUNT, checkpoints=COUNT)),
    ),
    "Member": shaped(subject=TEXT, checkpoint=TEXT, short=maybe(TEXT), running=FLAG),
    "Members": shaped(members=listed(named("Member"))),
    "Drilled": shaped(
        subject=TEXT,
        checkpoint=TEXT,
        short=TEXT,
        time=TEXT,
        ok=FLAG,
        tried=FLAG,
        problems=listed(TEXT),
        notes=listed(TEXT),
        seconds=NUMBER,
    ),
    "Drills": shaped(
        every_hours=NUMBER,
        most=COUNT,
        subjects=listed(TEXT),
        running=FLAG,
        time=maybe(TEXT),
        drills=listed(named("Drilled")),
    ),
    "Session": shaped(name=TEXT, subject=TEXT, busy=FLAG, clients=COUNT),
    "Sessions": shaped(sessions=listed(named("Session")), why_not=maybe(TEXT), idle_timeout=NUMBER),
    "Started": shaped(name=TEXT, subject=TEXT, report=listed(named("Item"))),
    "Reported": shaped(report=listed(named("Item"))),
    "Interrupted": shaped(interrupted=FLAG),
}
