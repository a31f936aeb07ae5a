"""`holdfast rollback`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import (
    complete_reference,
    complete_subject,
    files_option,
    find,
    find_subject,
    trust_option,
)


@click.command("rollback")
@click.argument("subject", shell_complete=complete_subject)
@click.option(
    "--to",
    metavar="ID",
    shell_complete=complete_reference,
    help="The checkpoint to bring back; the head's parent when not given.",
)
@files_option
@trust_option
@click.pass_obj
def command(invocation: Invocation, subject: str, to: str | None, files: bool, trust: bool) -> None:
    """Bring an earlier checkpoint back as a new one.

    SUBJECT (kind/name) gets a new checkpoint with the earlier content, so nothing is lost and
    the rollback itself can be undone.
    """
    from holdfast.cli import files as states
    from holdfast.cli.rows import line
    from holdfast.server import shapes

    if kept := states.meant(invocation, subject, files):
        states.rollback(invocation, kept, to)
        return
    with invocation.store() as store:
        wanted = find_subject(store, subject, hint="holdfast rollback {subject} --to {id}")
        target = find(store, to) if to is not None else None
        checkpoint = store.rollback(wanted, to=target, trust=trust)
    invocation.show(
        {"checkpoint": shapes.checkpoint(checkpoint)}, lambda: f"head: {line(checkpoint)}"
    )
