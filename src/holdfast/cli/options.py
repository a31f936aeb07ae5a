"""The options that every command takes, before or after the verb: `--store` and `--json`."""

from __future__ import annotations

from typing import TypeVar

import click

from holdfast.cli.invocation import Invocation

C = TypeVar("C", bound=click.Command)


def _take_store(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    invocation = ctx.ensure_object(Invocation)
    if value is not None:
        invocation.options["store"] = value
    return value


def _take_json(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    invocation = ctx.ensure_object(Invocation)
    invocation.json = invocation.json or value
    return value


def add_shared(command: C) -> C:
    """Give a command the shared options that it does not have yet; groups pass them on."""
    names = {name for param in command.params for name in param.opts}
    if "--store" not in names:
        command.params.append(
            click.Option(
                ["--store"],
                metavar="URL",
                help="The store: a path, file:///path, s3://bucket/prefix, gs://, az:// or memory://.",
                expose_value=False,
                callback=_take_store,
            )
        )
    if "--json" not in names:
        command.params.append(
            click.Option(
                ["--json"],
                is_flag=True,
                help="Write JSON for programs.",
                expose_value=False,
                callback=_take_json,
            )
        )
    if isinstance(command, click.Group):
        for child in command.commands.values():
            add_shared(child)
    return command
