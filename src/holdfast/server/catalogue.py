"""Routes of `/v1` that are in no table of verbs, as the description has them."""

from __future__ import annotations

import msgspec

from holdfast.model.subject import KINDS
from holdfast.server import drills, templates
from holdfast.server.schemas import ARCHIVE, FLAG, TEXT, Schema, maybe

# Its name, method, path, summary, answer, query, and the body it takes.
Row = tuple[str, str, str, str, str, dict[str, Schema], Schema | None]


def _shape(body: type) -> Schema:
    """The schema of a body, whole."""
    found: Schema = msgspec.json.schema_components([body])[1][body.__name__]
    return found


_NAMED: Schema = {"type": "object", "additionalProperties": False}
_ONE = "/v1/sessions/{name:path}"
_SESSIONS: tuple[Row, ...] = (
    ("listSessions", "get", "/v1/sessions", "Sessions that run here", "Sessions", {}, None),
    (
        "startSession",
        "post",
        "/v1/sessions",
        "Start a session, or bring it back from its head",
        "Started",
        {},
        {
            **_NAMED,
            "properties": {
                "name": maybe({**TEXT, "minLength": 1, "maxLength": 255}),
                "trust": FLAG,
            },
        },
    ),
    (
        "checkpointSession",
        "post",
        f"{_ONE}/checkpoint",
        "Freeze a session that goes on",
        "SandboxCheckpoint",
        {},
        {**_NAMED, "properties": {"reason": {**TEXT, "minLength": 1, "maxLength": 1000}}},
    ),
    (
        "rollbackSession",
        "post",
        f"{_ONE}/rollback",
        "Let a running session go back",
        "Reported",
        {},
        {
            **_NAMED,
            "properties": {
                "to": maybe({**TEXT, "minLength": 1, "maxLength": 1000}),
                "trust": FLAG,
            },
        },
    ),
    (
        "restoreSession",
        "post",
        f"{_ONE}/restore",
        "Give a running session the content of a checkpoint",
        "Reported",
        {},
        {
            **_NAMED,
            "properties": {"to": {**TEXT, "minLength": 1, "maxLength": 1000}, "trust": FLAG},
            "required": ["to"],
        },
    ),
    (
        "interruptSession",
        "post",
        f"{_ONE}/interrupt",
        "End what a session is running",
        "Interrupted",
        {},
        _NAMED,
    ),
    ("stopSession", "delete", _ONE, "End a session after a checkpoint", "Gone", {}, None),
)

ROUTES: tuple[Row, ...] = (
    ("listSubjects", "get", "/v1/subjects", "All subjects", "Subjects", {}, None),
    (
        "lineage",
        "get",
        "/v1/subjects/{kind}/{name:path}/lineage",
        "A subject's lineage",
        "Lineage",
        {},
        None,
    ),
    (
        "listCheckpoints",
        "get",
        "/v1/checkpoints",
        "Checkpoints, newest first",
        "Checkpoints",
        {
            "subject": TEXT,
            "kind": {"enum": list(KINDS)},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
        },
        None,
    ),
    ("show", "get", "/v1/checkpoints/{id}", "One checkpoint and its parts", "Manifest", {}, None),
    (
        "export",
        "get",
        "/v1/checkpoints/{id}/export",
        "A checkpoint as an archive, with all it descends from if wanted",
        "Archive",
        {"ancestors": FLAG},
        None,
    ),
    (
        "import",
        "post",
        "/v1/import",
        "Take in what an archive holds",
        "Importing",
        {"trust": FLAG, "dry_run": FLAG},
        ARCHIVE,
    ),
    ("listSandboxes", "get", "/v1/sandboxes", "Sandboxes that run here", "Sandboxes", {}, None),
    ("listTemplates", "get", templates.PATH, "Templates of sandboxes", "Templates", {}, None),
    (
        "makeTemplate",
        "post",
        templates.PATH,
        "Run code in a new sandbox and keep that as a template",
        "OneTemplate",
        {},
        _shape(templates.NewTemplate),
    ),
    ("deleteTemplate", "delete", templates.ONE, "Forget a template", "Gone", {}, None),
    (
        "makeExample",
        "post",
        "/v1/example",
        "Subjects to play with",
        "Example",
        {},
        {"type": "object", "additionalProperties": False},
    ),
    (
        "drills",
        "get",
        "/v1/drills",
        "The schedule of drills, and the last results",
        "Drills",
        {},
        None,
    ),
    (
        "drill",
        "post",
        "/v1/drills",
        "Bring the heads that are due back elsewhere, and compare",
        "Drills",
        {},
        _shape(drills.Now),
    ),
    *_SESSIONS,
)
