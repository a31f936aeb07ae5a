"""The OpenAPI description of `/v1`, made from the table of operations and the shapes of answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec

from holdfast import __version__
from holdfast.model.report import Outcome
from holdfast.model.subject import KINDS
from holdfast.server import schemas
from holdfast.server.archives import MEDIA_TYPE
from holdfast.server.bundles import BundleOperation
from holdfast.server.catalogue import ROUTES
from holdfast.server.operations import Operation
from holdfast.server.sandbox_verbs import SandboxOperation
from holdfast.server.schemas import COUNT as _COUNT
from holdfast.server.schemas import FLAG as _FLAG
from holdfast.server.schemas import TEXT as _TEXT
from holdfast.server.schemas import Schema
from holdfast.server.schemas import listed as _list
from holdfast.server.schemas import maybe as _maybe
from holdfast.server.schemas import named as _ref
from holdfast.server.schemas import shaped as _object

SCHEMAS: dict[str, Schema] = {
    "Error": _object(
        error=_object(kind=_TEXT, message=_TEXT, hint=_maybe(_TEXT), request_id=_TEXT)
    ),
    "Checkpoint": _object(
        id=_TEXT,
        short=_TEXT,
        digest=_TEXT,
        subject=_TEXT,
        kind={"enum": list(KINDS)},
        name=_TEXT,
        parents=_list(_TEXT),
        reason=_TEXT,
        stage=_maybe(_TEXT),
        time=_TEXT,
        size_bytes=_COUNT,
        stored_bytes=_COUNT,
        part_count=_COUNT,
        sequence=_COUNT,
        tags={"type": "object", "additionalProperties": _TEXT},
        pinned=_FLAG,
        rollback_of=_maybe(_TEXT),
        signer=_TEXT,
        foreign=_FLAG,
    ),
    "OneCheckpoint": _object(checkpoint=_ref("Checkpoint")),
    "Checkpoints": _object(checkpoints=_list(_ref("Checkpoint"))),
    "Manifest": _object(
        checkpoint=_ref("Checkpoint"),
        parts=_list(_object(name=_TEXT, size=_COUNT, split=_TEXT, root=_TEXT)),
        report=_maybe(_list(_ref("Item"))),
        relatives={"type": "object", "additionalProperties": _TEXT},
    ),
    "Item": _object(
        name=_TEXT,
        outcome={"enum": list(get_args(Outcome))},
        tier=_TEXT,
        size_bytes=_COUNT,
        reason=_TEXT,
    ),
    "Subject": _object(
        subject=_TEXT,
        kind={"enum": list(KINDS)},
        name=_TEXT,
        head=_maybe(_ref("Checkpoint")),
        count=_COUNT,
        size_bytes=_COUNT,
        time=_TEXT,
    ),
    "Subjects": _object(subjects=_list(_ref("Subject"))),
    "Move": _object(
        subject=_TEXT,
        sequence=_COUNT,
        time=_TEXT,
        verb=_TEXT,
        before=_maybe(_TEXT),
        after=_maybe(_TEXT),
    ),
    "OneMove": _object(move=_ref("Move")),
    "Lineage": _object(
        subject=_TEXT,
        head=_maybe(_TEXT),
        checkpoints=_list(_ref("Checkpoint")),
        origins=_list(_ref("Checkpoint")),
        forks=_list(_ref("Checkpoint")),
        moves=_list(_ref("Move")),
    ),
    "Diff": _object(
        before=_TEXT,
        after=_TEXT,
        parts=_list(
            _object(
                name=_TEXT,
                change={"enum": ["added", "removed", "changed", "same"]},
                size_before=_maybe(_COUNT),
                size_after=_maybe(_COUNT),
                changed_bytes=_COUNT,
            )
        ),
        values=_list(_ref("ValueChange")),
        more_values=_COUNT,
        variables=_maybe(_list(_ref("VariableChange"))),
    ),
    "Verification": _object(
        ok=_FLAG,
        deep=_FLAG,
        problems=_list(_object(where=_TEXT, what=_TEXT, affects=_list(_TEXT), hint=_TEXT)),
        notes=_list(_TEXT),
        checkpoints=_COUNT,
        chunks=_COUNT,
        bytes_read=_COUNT,
    ),
    "Pruning": _object(
        dry_run=_FLAG,
        removed=_list(_ref("Checkpoint")),
        kept=_list(_object(checkpoint=_ref("Checkpoint"), why=_TEXT)),
        reclaimed_bytes=_COUNT,
        pending_bytes=_COUNT,
        log_bytes=_COUNT,
        problems=_list(_TEXT),
        damaged=_list(_TEXT),
        owned=_list(_TEXT),
    ),
    "Importing": _object(
        checkpoint=_ref("Checkpoint"),
        imported=_list(_ref("Checkpoint")),
        already=_list(_ref("Checkpoint")),
        archive_bytes=_COUNT,
        dry_run=_FLAG,
    ),
    "Archive": schemas.ARCHIVE,
    "Sandbox": _object(
        id=_TEXT,
        name=_maybe(_TEXT),
        engine=_TEXT,
        attached=_FLAG,
        executing=_FLAG,
        checkpoints=_FLAG,
        idle_seconds={"type": "number", "minimum": 0},
        idle_timeout={"type": "number"},
    ),
    "Sandboxes": _object(sandboxes=_list(_ref("Sandbox"))),
    "SandboxCheckpoint": _object(
        checkpoint=_ref("Checkpoint"), pause_ms={"type": "number", "minimum": 0}
    ),
    "SandboxPasses": _object(sandboxes=_list(_object(id=_TEXT, token=_TEXT))),
    "Files": _object(
        verb=_TEXT,
        path=_TEXT,
        data=_maybe(_TEXT),
        encoding={"enum": ["text", "base64"]},
        size=_maybe(_COUNT),
        modified=_maybe({"type": "number"}),
        entries=_maybe(
            _list(
                _object(
                    name=_TEXT,
                    kind={"enum": ["file", "folder", "link", "other"]},
                    size=_COUNT,
                    mode=_COUNT,
                    modified={"type": "number"},
                )
            )
        ),
    ),
    "Gone": _object(id=_TEXT),
    "Template": _object(name=_TEXT, ready=_COUNT, checkpoint=_ref("Checkpoint")),
    "OneTemplate": _object(template=_ref("Template")),
    "Templates": _object(templates=_list(_ref("Template"))),
    "Example": _object(subjects=_list(_TEXT)),
    **schemas.MORE,
}


def describe(
    operations: Sequence[Operation | SandboxOperation | BundleOperation],
) -> dict[str, object]:
    """The whole document."""
    bodies, components = msgspec.json.schema_components(
        [each.body for each in operations if each.body],
        ref_template="#/components/schemas/{name}",
    )
    found = dict(zip((each.body for each in operations if each.body), bodies, strict=True))
    paths: dict[str, dict[str, object]] = {}
    for each in operations:
        query = {name: {**_TEXT, "minLength": 1} for name in each.query}
        body = found[each.body] if each.body else None
        described = _described(
            each.name, each.path, each.summary, each.answer, query, body, all_needed=True
        )
        paths.setdefault(_plain(each.path), {})[each.method.lower()] = described
    for name, method, path, summary, answer, query, body in ROUTES:
        described = _described(name, path, summary, answer, query, body, all_needed=False)
        paths.setdefault(_plain(path), {})[method] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": __version__},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**SCHEMAS, **components},
        },
    }


def _media(schema: Schema) -> str:
    """What a body of that shape is sent as: JSON, unless it is an archive."""
    return MEDIA_TYPE if schema in (schemas.ARCHIVE, _ref("Archive")) else "application/json"


def _plain(path: str) -> str:
    return path.replace(":path}", "}")


def _described(
    name: str,
    path: str,
    summary: str,
    answer: str,
    query: Mapping[str, Schema],
    body: Schema | None,
    *,
    all_needed: bool,
) -> dict[str, object]:
    parameters: list[Schema] = [
        {"name": each, "in": "path", "required": True, "schema": {**_TEXT, "minLength": 1}}
        for each in re.findall(r"{(\w+)", path)
    ]
    parameters += [
        {"name": each, "in": "query", "required": all_needed, "schema": schema}
        for each, schema in query.items()
    ]
    told: dict[str, object] = {
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": {
                "description": "done",
                "content": {_media(_ref(answer)): {"schema": _ref(answer)}},
            },
            "default": {
                "description": "an error, by its kind",
                "content": {"application/json": {"schema": _ref("Error")}},
            },
        },
    }
    if body is not None:
        told["requestBody"] = {"content": {_media(body): {"schema": body}}}
    return told
