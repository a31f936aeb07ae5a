"""The configurations that docs/guides/agents.md shows start the server that they say they start."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mcp import Client, StdioServerParameters
from tests.server.mcp.conftest import HOLDFAST

from holdfast.cli.main import cli

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "agents.md").read_text("utf-8")
KEYS = ("mcpServers", "servers", "context_servers", "mcp_servers")


def servers() -> Iterator[dict[str, Any]]:
    for language, text in re.findall(r"```(json|toml)\n(.*?)```", PAGE, re.DOTALL):
        document = json.loads(text) if language == "json" else tomllib.loads(text)
        (key,) = document
        assert key in KEYS
        yield document[key]["holdfast"]


def parse(words: list[str]) -> None:
    """Raises a click error for what the command line does not know."""
    assert words[:2] == ["holdfast", "mcp"]
    command = cli.get_command(click.Context(cli), "mcp")
    assert command is not None
    command.make_context("mcp", words[2:])


def test_every_configuration_is_a_command_that_there_is() -> None:
    found = list(servers())
    assert len(found) >= 8
    for each in found:
        if "url" in each:
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", each["url"])
        else:
            parse([each["command"], *each["args"]])


async def test_every_configuration_starts_the_tools(tmp_path: Path) -> None:
    """Each that differs, by the official client; the folders that they name are the reader's."""
    started: set[tuple[str, ...]] = set()
    for each in servers():
        words = tuple(each.get("args", ()))
        if "url" in each or words in started:
            continue
        started.add(words)
        parameters = StdioServerParameters(
            command=str(HOLDFAST),
            args=[str(tmp_path) if "/" in word or "$" in word else word for word in words],
            env={**each.get("env", {}), "HOLDFAST_HOME": str(tmp_path / "home")},
            cwd=tmp_path,
        )
        async with Client(parameters, read_timeout_seconds=60) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
        assert names >= {"execute", "checkpoint", "restore", "rollback", "fork", "list", "diff"}
    assert len(started) >= 3


def test_every_command_that_adds_it_is_one_that_there_is() -> None:
    lines = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
             for line in block.splitlines()]  # fmt: skip
    added = [shlex.split(line) for line in lines if " -- " in line]
    assert added
    for words in added:
        parse(words[words.index("--") + 1 :])
