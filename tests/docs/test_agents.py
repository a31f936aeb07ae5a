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


def test_every_command_that_adds_it_is_one_that_there_is() -> None:
    lines = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
             for line in block.splitlines()]  # fmt: skip
    added = [shlex.split(line) for line in lines if " -- " in line]
    assert added
    for words in added:
        parse(words[words.index("--") + 1 :])
