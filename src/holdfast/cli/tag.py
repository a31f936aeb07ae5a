"""`holdfast tag`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, find


@click.command("tag")
@click.argument("id", metavar="ID", shell_complete=complete_reference)
@click.argument("tags", metavar="[NAME[=VALUE]]...", nargs=-1)
@click.option("--remove", metavar="NAME", multiple=True, help="Remove this tag; may be repeated.")
@click.pass_obj
def command(
    invocation: Invocation,
    id: str,  # noqa: A002
    tags: tuple[str, ...],
    remove: tuple[str, ...],
) -> None:
    """Show, set or remove the tags of a checkpoint.

    A tag's name finds the checkpoint from then on; a number as VALUE serves `prune --keep-best`.
    """
    from holdfast.server import shapes
    from holdfast.view.words import printable

    with invocation.store() as store:
        target = find(store, id)
        for each in tags:
            name, _, value = each.partition("=")
            store.tag(target, name, value)
        for name in remove:
            store.untag(target, name)
        checkpoint = store.resolve(target.id)
    invocation.show(
        {"checkpoint": shapes.checkpoint(checkpoint)},
        lambda: "\n".join(
            printable(f"{name}={value}" if value else name)
            for name, value in sorted(checkpoint.tags.items())
        ),
    )
    if not checkpoint.tags:
        invocation.tell(f"{checkpoint.short} has no tags")
