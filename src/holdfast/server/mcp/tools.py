"""The tools: one table, from which their descriptions, their schemas and their calls come."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.server.mcp import answers
from holdfast.server.mcp import arguments as given
from holdfast.server.mcp.contract import Level, Progress

Call = Callable[[Level, str, Any, Progress], Awaitable[answers.Answer]]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One verb. The hints are what a client may show before it asks its person."""

    name: str
    title: str
    description: str
    arguments: type[given.Arguments]
    answer: type[answers.Answer]
    call: Call
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        return schema(self.arguments)

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        return schema(self.answer)


def schema(of: type[Struct]) -> dict[str, Any]:
    """A schema whose root is the object itself, as clients want it; parts stand under `$defs`."""
    (root,), parts = msgspec.json.schema_components([of], ref_template="#/$defs/{name}")
    own = parts.pop(root["$ref"].rpartition("/")[2])
    return {**own, **({"$defs": parts} if parts else {})}


TOOLS = (
    Tool(
        name="execute",
        title="Run code",
        description="Run Python in a session that keeps its variables, functions and imports, or"
        " Python and bash in a sandbox. The state after it is durable when this answers: it comes"
        " back after a crash, and `rollback` undoes it.",
        arguments=given.Execute,
        answer=answers.Executed,
        call=lambda level, name, asked, progress: level.execute(name, asked, progress),
        destructive=True,
        open_world=True,
    ),
    Tool(
        name="checkpoint",
        title="Keep this moment",
        description="Freeze a subject as it is now, under a reason, so that it can be brought"
        " back. Do this before something risky.",
        arguments=given.Checkpoint,
        answer=answers.Kept,
        call=lambda level, name, asked, _: level.checkpoint(name, asked),
    ),
    Tool(
        name="restore",
        title="Go to a checkpoint",
        description="Replace a subject's state by that of one of its checkpoints. What was there"
        " stays in the history.",
        arguments=given.Restore,
        answer=answers.Moved,
        call=lambda level, name, asked, _: level.restore(name, asked),
        destructive=True,
        idempotent=True,
    ),
    Tool(
        name="rollback",
        title="Go back",
        description="Undo: go back to before the last checkpoint, or to a given one, as a new"
        " checkpoint, so that this can be undone, too. In a session, each execution made one.",
        arguments=given.Rollback,
        answer=answers.Moved,
        call=lambda level, name, asked, _: level.rollback(name, asked),
        destructive=True,
    ),
    Tool(
        name="fork",
        title="Copy a subject",
        description="Begin a new subject with the state of this one, now or at a checkpoint, to"
        " try something else. Both go on by themselves.",
        arguments=given.Fork,
        answer=answers.Kept,
        call=lambda level, name, asked, _: level.fork(name, asked),
    ),
    Tool(
        name="list",
        title="List subjects and checkpoints",
        description="The checkpoints of a subject, newest first; without a subject, all subjects"
        " and the latest checkpoints.",
        arguments=given.List,
        answer=answers.Listed,
        call=lambda level, name, asked, _: level.list(name, asked),
        read_only=True,
    ),
    Tool(
        name="diff",
        title="Compare two checkpoints",
        description="What changed from one checkpoint to another: variables, values, files, bytes.",
        arguments=given.Diff,
        answer=answers.Compared,
        call=lambda level, name, asked, _: level.diff(name, asked),
        read_only=True,
    ),
    Tool(
        name="read_file",
        title="Read a file",
        description="A file of the workspace that sessions run in, or of a sandbox.",
        arguments=given.ReadFile,
        answer=answers.FileRead,
        call=lambda level, name, asked, _: level.read_file(name, asked),
        read_only=True,
    ),
    Tool(
        name="write_file",
        title="Write a file",
        description="Replace a file of the workspace or of a sandbox, whole; folders are made. The"
        " checkpoints of a sandbox have its files; those of a session do not.",
        arguments=given.WriteFile,
        answer=answers.FileWritten,
        call=lambda level, name, asked, _: level.write_file(name, asked),
        destructive=True,
        idempotent=True,
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
