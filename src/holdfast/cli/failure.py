"""Errors as the command line tells them: `error:` and `hint:` lines, or one JSON document."""

from __future__ import annotations

import sys
import traceback

import click

from holdfast.model.errors import BadInput, HoldfastError, UsageError, from_os_error


def explain(error: Exception) -> HoldfastError:
    """Any error in Holdfast's words."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "holdfast"
        return UsageError(_usage(error), hint=f"see `{path} --help`")
    if isinstance(error, click.ClickException):
        return UsageError(_one_line(error.format_message()))
    if isinstance(error, OSError):
        return from_os_error(error, "working")
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # as pathlib says it
        return BadInput(
            "this user has no home directory",
            hint="set HOME, or both HOLDFAST_HOME and XDG_CONFIG_HOME",
        )
    return HoldfastError(
        f"unexpected {type(error).__name__}: {error}",
        hint="this is a defect of Holdfast; HOLDFAST_DEBUG=1 shows where it happened",
    )


def _usage(error: click.UsageError) -> str:
    """What click found wrong, on one line."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return "Missing command."
    if isinstance(error, click.MissingParameter) and error.param and error.ctx:
        kind = error.param.type
        if isinstance(kind, click.Choice):  # click puts each choice on a line of its own
            name = error.param.make_metavar(error.ctx)
            return f"Missing argument {name!r}: one of {', '.join(map(str, kind.choices))}"
    return _one_line(error.format_message())


def _one_line(message: str) -> str:
    return " ".join(message.split())


def report(error: Exception, *, as_json: bool, debug: bool = False) -> int:
    """Tell an error on stderr and give the exit code of its kind."""
    told = explain(error)
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if as_json:
        import json

        from holdfast.server import shapes

        print(json.dumps(shapes.error(told)), file=sys.stderr)
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)  # the help itself, made by click
    else:
        from holdfast.view.words import printable

        print(f"error: {printable(str(told))}", file=sys.stderr)
        if told.hint:
            print(f"hint: {printable(told.hint)}", file=sys.stderr)
    return told.exit_code
