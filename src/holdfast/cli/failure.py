"""Errors as the command line tells them: `error:` and `hint:` lines, or one JSON document."""

from __future__ import annotations

import sys
import traceback

import click

from holdfast.model.errors import HoldfastError, UsageError, from_os_error


def explain(error: Exception) -> HoldfastError:
    """Any error in Holdfast's words."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "holdfast"
        return UsageError(error.format_message(), hint=f"see `{path} --help`")
    if isinstance(error, click.ClickException):
        return UsageError(error.format_message())
    if isinstance(error, OSError):
        return from_os_error(error, "working")
    return HoldfastError(
        f"unexpected {type(error).__name__}: {error}",
        hint="this is a defect of Holdfast; HOLDFAST_DEBUG=1 shows where it happened",
    )


def report(error: Exception, *, as_json: bool, debug: bool = False) -> int:
    """Tell an error on stderr and give the exit code of its kind."""
    told = explain(error)
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if as_json:
        import json

        from holdfast.server import shapes

        print(json.dumps(shapes.error(told)), file=sys.stderr)
    else:
        from holdfast.server.words import printable

        print(f"error: {printable(str(told))}", file=sys.stderr)
        if told.hint:
            print(f"hint: {printable(told.hint)}", file=sys.stderr)
    return told.exit_code
