"""`holdfast checkpoint`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_subject


@click.command("checkpoint")
@click.argument("subject", shell_complete=complete_subject)
@click.option("--reason", default="manual", show_default=True, help="Why, in a few words.")
@click.pass_obj
def command(invocation: Invocation, subject: str, reason: str) -> None:
    """Take a checkpoint of a running subject.

    The process that runs SUBJECT takes it; a subject that nothing runs has nothing new to save.
    """
    from holdfast.model.errors import Unsupported
    from holdfast.model.subject import Subject

    named = Subject.parse(subject)
    if named.kind == "container":
        from holdfast.cli.container import take

        take(invocation, str(named), reason=reason, stop=False)
        return
    raise Unsupported(
        f"nothing that runs {named} can be reached from here",
        hint="take it where it runs: checkpoint() of its Session or StateManager",
    )
