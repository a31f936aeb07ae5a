"""`holdfast rollback`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, complete_subject, trust_option


@click.command("rollback")
@click.argument("subject", shell_complete=complete_subject)
@click.option(
    "--to",
    metavar="ID",
    shell_complete=complete_reference,
    help="The checkpoint to bring back; the head's parent when not given.",
)
@trust_option
@click.pass_obj
def command(invocation: Invocation, subject: str, to: str | None, trust: bool) -> None:
    """Bring an earlier checkpoint back as a new one.

    SUBJECT (kind/name) gets a new checkpoint with the earlier content, so nothing is lost and
    the rollback itself can be undone.
    """
    from holdfast.cli.rows import line
    from holdfast.model.subject import Subject
    from holdfast.server import shapes

    with invocation.store() as store:
        checkpoint = store.rollback(Subject.parse(subject), to=to, trust=trust)
    invocation.show(
        {"checkpoint": shapes.checkpoint(checkpoint)}, lambda: f"head: {line(checkpoint)}"
    )
