"""`holdfast completion`."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash:  eval "$(holdfast completion bash)"     in ~/.bashrc
    zsh:   eval "$(holdfast completion zsh)"      in ~/.zshrc
    fish:  holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    from click.shell_completion import get_completion_class

    from holdfast.cli.main import COMPLETE_VARIABLE, cli

    script = get_completion_class(shell)
    if script is None:
        raise LookupError(f"click has no completion for {shell}")
    click.echo(script(cli, {}, "holdfast", COMPLETE_VARIABLE).source())
