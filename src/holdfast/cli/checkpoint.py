"""`holdfast checkpoint`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from holdfast.cli import remote
from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_subject

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.subject import Subject
    from holdfast.store import Store

_SERVED = {"sandbox": "sandboxes", "session": "sessions"}


@click.command("checkpoint")
@click.argument("subject", shell_complete=complete_subject)
@click.option("--reason", default="manual", show_default=True, help="Why, in a few words.")
@click.pass_obj
def command(invocation: Invocation, subject: str, reason: str) -> None:
    """Take a checkpoint of a running subject.

    Whoever runs SUBJECT takes it: a server its sandboxes and sessions, `holdfast repl` and
    `holdfast run` their session, this node its containers. A subject that nothing runs has nothing
    new to save.
    """
    from holdfast.cli.rows import line
    from holdfast.model.subject import Subject
    from holdfast.server import shapes

    named = Subject.parse(subject)
    if named.kind == "container":
        from holdfast.cli.container import take

        take(invocation, str(named), reason=reason, stop=False)
        return
    with invocation.store() as store:
        made = _by_its_owner(invocation, store, named, reason)
        invocation.show({"checkpoint": shapes.checkpoint(made)}, lambda: f"head: {line(made)}")


def _by_its_owner(
    invocation: Invocation, store: Store, subject: Subject, reason: str
) -> Checkpoint:
    """Ask the server or the prompt that runs it. Raises Unsupported when it cannot be asked."""
    from holdfast.model.errors import Unsupported
    from holdfast.session import door

    owner = store.owner(subject)
    if owner is None or owner.url is None or subject.kind not in _SERVED:
        raise Unsupported(
            f"nothing that runs {subject} can be reached from here",
            hint="take it where it runs: checkpoint() of its Session or StateManager",
        )
    if door.is_door(owner.url):
        return store.resolve(door.ask(owner.url, reason))
    path = f"/v1/{_SERVED[subject.kind]}/{quote(subject.name)}/checkpoint"
    told = remote.post(invocation, owner.url, path, {"reason": reason})
    return store.resolve(str(told["checkpoint"]["id"]))
