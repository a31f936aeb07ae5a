"""The command `holdfast`: finds the verb, runs it, and turns what goes wrong into words.

Nothing but click is imported before a verb is known, so that `--help` answers at once: the
overview comes from the table below, and a test keeps it equal to the verbs' own first lines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from holdfast import __version__
from holdfast.cli.options import add_shared

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMPLETE_VARIABLE = "_HOLDFAST_COMPLETE"
DEBUG = "HOLDFAST_DEBUG"

# section -> verb -> (module in holdfast.cli, first line of its help)
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Look": {
        "list": ("list", "List checkpoints, newest first."),
        "subjects": ("subjects", "List subjects and where each stands, the latest touched first."),
        "show": ("show", "Show a checkpoint and its parts, or write out one part."),
        "log": ("log", "Draw the lineage of a subject: head, forks and rollbacks."),
        "diff": ("diff", "Compare two checkpoints, part by part and value by value."),
        "verify": ("verify", "Check that the store holds what was written."),
        "stats": ("stats", "Show what the store holds and what that takes on disk."),
    },
    "Work": {
        "repl": ("repl", "Open a Python prompt whose every cell is checkpointed."),
        "run": (
            "run",
            "Run a script's cells in a durable session, resuming where it stopped.",
        ),
    },
    "Go back, or elsewhere": {
        "checkpoint": ("checkpoint", "Take a checkpoint of a running subject."),
        "restore": ("restore", "Move a subject's head to one of its checkpoints."),
        "rollback": ("rollback", "Bring an earlier checkpoint back as a new one."),
        "fork": ("fork", "Start a new subject from a checkpoint."),
        "bundle": ("bundle", "Bind several subjects under one id, and go back to all at once."),
        "undo": ("undo", "Take back the last move of a subject's head."),
    },
    "Carry elsewhere": {
        "export": ("export", "Write a checkpoint to a file that any store can import."),
        "import": ("import_", "Take in the checkpoints of a file that `export` wrote."),
        "copy": ("copy", "Bring the store DST up to date with the store SRC."),
    },
    "Keep and forget": {
        "pin": ("pin", "Keep checkpoints whatever the retention says."),
        "unpin": ("unpin", "Leave pinned checkpoints to the retention again."),
        "tag": ("tag", "Show, set or remove the tags of a checkpoint."),
        "prune": ("prune", "Remove the checkpoints that no policy keeps, and free their bytes."),
        "delete": ("delete", "Delete single checkpoints, or all of a subject."),
    },
    "Set up": {
        "init": ("init", "Make a store, where there is none yet."),
        "container": (
            "container",
            "Freeze and revive containers under containerd, Docker or Podman.",
        ),
        "template": (
            "template",
            "Keep sandboxes that new ones begin as, with code already run in them.",
        ),
        "serve": ("serve", "Start the server: pages for people, JSON for programs."),
        "mcp": ("mcp", "Give agents the verbs as tools (Model Context Protocol)."),
        "doctor": (
            "doctor",
            "Try what this machine can do, and say what is missing and what mends it.",
        ),
        "config": ("config", "Show the settings in force and where each comes from."),
        "key": (
            "key",
            "Manage the key that signs checkpoints, and the secrets that open an encrypted store.",
        ),
        "completion": ("completion", "Print the completion script for a shell."),
        "help": ("help", "Explain a command, as COMMAND --help does."),
    },
}
VERBS = {verb: entry for verbs in SECTIONS.values() for verb, entry in verbs.items()}


class LazyGroup(click.Group):
    """A group that imports a verb's module when the verb is called, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = import_module(f"holdfast.cli.{VERBS[cmd_name][0]}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"holdfast.cli.{VERBS[cmd_name][0]}.command is not a click command")
        return add_shared(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            import difflib

            close = difflib.get_close_matches(args[0], VERBS, n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, VERBS))
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(verb.ljust(width), line) for verb, (_, line) in verbs.items()], col_spacing=2
                )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(verb, help=line)
            for verb, (_, line) in VERBS.items()
            if verb.startswith(incomplete)
        ]


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A checkpoint is named by its id, a short id, a subject (its head), subject~2"
    " (an ancestor) or a tag.",
)
@click.version_option(__version__, "-V", "--version", message="holdfast %(version)s")
def cli() -> None:
    """Holdfast freezes running work and brings it back.

    Data goes to stdout, messages to stderr; the exit code tells the kind of an error.
    """


add_shared(cli)


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run one command line and give its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if sys.stderr is None:  # closed: print() would take None for stdout
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  it stays open to the end
    if sys.stdout is None:
        from holdfast.cli import failure
        from holdfast.model.errors import UsageError

        closed = UsageError("standard output is closed", hint="to discard it, use >/dev/null")
        return failure.report(closed, as_json=wants_json(given))
    if COMPLETE_VARIABLE in environ:
        cli.main(given, prog_name="holdfast", complete_var=COMPLETE_VARIABLE)
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal cannot show must not end the command.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        width = help_width(environ)
        with cli.make_context("holdfast", given.copy(), terminal_width=width) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return _finish(end.exit_code)
    except BrokenPipeError:
        return _reader_left()
    except (KeyboardInterrupt, click.Abort):
        _discard_output()
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001  the outermost place: here every error becomes words
        from holdfast.cli import failure

        return failure.report(error, as_json=wants_json(given), debug=bool(environ.get(DEBUG)))
    return 0


def help_width(environ: Mapping[str, str]) -> int:
    """How wide help texts may be. click would import shutil, with three compressors, to know."""
    try:
        columns = int(environ.get("COLUMNS", "0")) or os.get_terminal_size().columns
    except (OSError, ValueError):
        columns = 80
    return max(min(columns, 80) - 2, 50)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether `--json` is anywhere among the options: errors in the options themselves obey it."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def _finish(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_left()
    return code


def _reader_left() -> int:
    """The reader of our output has left (`holdfast list | head -1`): end as SIGPIPE would."""
    _discard_output()
    return 141


def _discard_output() -> None:
    """Let go of what is still buffered: to write it when the interpreter exits could fail again,
    or wait for ever on a reader that was stopped."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
