"""`holdfast help`."""

from __future__ import annotations

import click


@click.command("help")
@click.argument("names", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Explain a command, as COMMAND --help does."""
    context = ctx.parent or ctx
    for name in names:
        found = None
        if isinstance(context.command, click.Group):
            _, found, _ = context.command.resolve_command(context, [name])
        if found is None:
            raise click.UsageError(f"{context.command_path} has no commands of its own", context)
        context = click.Context(found, context, name, terminal_width=context.terminal_width)
    click.echo(context.get_help())
