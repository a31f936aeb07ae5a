"""The reference names every command, argument, option, setting and field there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli.main import cli
from holdfast.cli.settings import KNOWN
from holdfast.model.errors import all_kinds
from holdfast.server.app import DESCRIBED
from holdfast.server.openapi import describe

DOCS = Path(__file__).resolve().parents[2] / "docs"
CLI = (DOCS / "reference" / "cli.md").read_text("utf-8")
SHARED = {"--store", "--json", "--help", "--version"}


def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from walk(child, f"{path} {name}")


COMMANDS = dict(walk(cli, "holdfast"))


def section(path: str) -> str:
    """What the reference says under the heading of a command."""
    if path == "holdfast":
        return CLI
    found = re.search(rf"^#+ {re.escape(path)}$(.*?)(?=^#|\Z)", CLI, re.DOTALL | re.MULTILINE)
    assert found, f"docs/reference/cli.md has no section `{path}`"
    return found[1]


def _bare(text: str) -> str:
    return re.sub(r"[\[\]]|\.\.\.", "", text)


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_is_documented(path: str) -> None:
    command = COMMANDS[path]
    text = section(path)
    assert command.get_short_help_str(200).strip(), f"{path} says nothing about itself"
    for param in command.params:
        if isinstance(param, click.Option):
            assert param.help, f"{path} {param.opts[0]} says nothing about itself"
            wanted = [param.opts[-1], *param.secondary_opts]
            if not SHARED.isdisjoint(wanted) and path != "holdfast":
                continue
        else:
            wanted = [_bare(param.make_metavar(click.Context(command)))]
        for name in wanted:
            assert f"`{name}" in _bare(text) or f" {name}" in _bare(text), (
                f"docs/reference/cli.md: `{path}` does not mention {name}"
            )


def test_no_section_is_about_a_command_that_is_gone() -> None:
    assert set(re.findall(r"^#+ (holdfast .+)$", CLI, re.MULTILINE)) == COMMANDS.keys() - {
        "holdfast"
    }


def test_no_option_is_documented_that_is_gone() -> None:
    for path, command in COMMANDS.items():
        options = {
            name for param in command.params for name in (*param.opts, *param.secondary_opts)
        }
        for name in re.findall(r"^\| `(--[\w-]+)", section(path), re.MULTILINE):
            assert name in options or path == "holdfast", f"{path} has no {name}"


def test_settings_and_exit_codes_are_documented() -> None:
    for setting in KNOWN:
        assert f"`{setting.variable}`" in CLI
        assert not setting.in_file or f"`{setting.name} = " in CLI
    for kind, error in all_kinds().items():
        row = rf"^\| {error.exit_code} \| .*`{kind}`"
        assert re.search(row, CLI, re.MULTILINE), f"{kind} {error.exit_code}"


def test_every_route_of_v1_is_in_the_table_of_the_architecture() -> None:
    """As a whole, or by its last word in the row of those that begin as it does."""
    page = (DOCS / "concepts" / "architecture.md").read_text("utf-8").partition("## The server")[2]
    rows = [re.findall(r"/[\w/.]+", line) for line in page.splitlines() if line.startswith("| ")]
    paths = describe(DESCRIBED)["paths"]
    assert isinstance(paths, dict)
    for path in paths:
        shown = re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), path)
        before, _, last = shown.rpartition("/")
        beside = [row for row in rows if any(each.startswith(f"{before}/") for each in row)]
        found = any(shown in row for row in rows) or any(f"/{last}" in row for row in beside)
        assert found, f"{shown} is not in docs/concepts/architecture.md"
