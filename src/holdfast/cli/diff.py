"""`holdfast diff`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, files_option, find, trust_option


@click.command("diff")
@click.argument("a", metavar="A", shell_complete=complete_reference)
@click.argument("b", metavar="[B]", required=False, shell_complete=complete_reference)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show what is the same, too, and what changes each time.",
)
@files_option
@trust_option
@click.pass_obj
def command(
    invocation: Invocation, a: str, b: str | None, everything: bool, files: bool, trust: bool
) -> None:
    """Compare two checkpoints, part by part and value by value.

    With A alone, it is compared with its parent: what did that step change?

    Parts that hold a value (split "structure") are compared inside; of the others, the changed
    bytes are counted. Of a session, each variable that changed is named.
    """
    from holdfast.cli import files as states
    from holdfast.cli.values import diff_shape
    from holdfast.session.variables import compare
    from holdfast.view.difference import page, values

    before, after = (f"{a}~1", a) if b is None else (a, b)
    if kept := states.meant(invocation, before, files):
        # The other one must be a file, too.
        other = states.meant(invocation, after, True)
        assert other is not None  # it insists
        states.diff(invocation, kept, other, values)
        return
    with invocation.store() as store:
        diff = store.diff(find(store, before), find(store, after), trust=trust)
        variables = compare(store, diff, trust=trust)
    text = page(diff, variables, everything)
    invocation.show(diff_shape(diff, variables), lambda: text)
    if not text:
        invocation.tell(f"{diff.before.short} and {diff.after.short} have the same content")
