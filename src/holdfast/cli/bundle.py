"""`holdfast bundle`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import (
    complete_reference,
    complete_subject,
    find,
    find_subject,
    trust_option,
)


@click.group("bundle")
def command() -> None:
    """Bind several subjects under one id, and go back to all at once.

    What runs is bound and brought back by the program that runs it, with holdfast.Bundle.
    """


@command.command("make")
@click.argument("name")
@click.argument("subjects", nargs=-1, required=True, shell_complete=complete_subject)
@click.option("--reason", default="manual", show_default=True, help="Why it is made.")
@click.pass_obj
def make(invocation: Invocation, name: str, subjects: tuple[str, ...], reason: str) -> None:
    """Bind the heads of SUBJECTS under NAME."""
    from holdfast.bundle import heads
    from holdfast.cli.rows import line
    from holdfast.model.subject import Subject
    from holdfast.server import shapes

    bundle = Subject("bundle", name.removeprefix("bundle/"))
    with invocation.store() as store:
        wanted = [find_subject(store, each) for each in subjects]
        made = heads.bind(store, bundle, wanted, reason)
    invocation.show({"checkpoint": shapes.checkpoint(made)}, lambda: f"head: {line(made)}")


@command.command("show")
@click.argument("id", metavar="ID", shell_complete=complete_reference)
@trust_option
@click.pass_obj
def show(invocation: Invocation, id: str, trust: bool) -> None:  # noqa: A002
    """Show what a bundle binds; ID may be its name."""
    from holdfast.bundle import record
    from holdfast.view.table import Column, table

    with invocation.store() as store:
        found = record.read(store, find(store, id), trust)
        kept = {each.id: each for each in store.list()}
    rows = [
        (
            member.subject,
            kept[member.checkpoint].short if member.checkpoint in kept else member.checkpoint,
            kept[member.checkpoint].reason if member.checkpoint in kept else "kept by the bundle",
        )
        for member in found.members
    ]
    columns = (Column("SUBJECT", "bold"), Column("CHECKPOINT", "yellow"), Column("REASON", cut=1))
    members = [
        {"subject": each.subject, "checkpoint": each.checkpoint, "kept": each.checkpoint in kept}
        for each in found.members
    ]
    invocation.show({"members": members}, lambda: table(columns, rows))


@command.command("restore")
@click.argument("id", metavar="ID", shell_complete=complete_reference)
@trust_option
@click.pass_obj
def restore(invocation: Invocation, id: str, trust: bool) -> None:  # noqa: A002
    """Move the heads of all members to where a bundle has them, at once; ID may be its name.

    Nothing that runs is touched: a running member is refused, and no head moves.
    """
    from holdfast.bundle import heads
    from holdfast.cli.rows import line
    from holdfast.server import shapes

    with invocation.store() as store:
        moved = heads.restore(store, find(store, id), trust=trust)
    invocation.show(
        {"checkpoints": [shapes.checkpoint(each) for each in moved]},
        lambda: "\n".join(f"head: {line(each)}" for each in moved),
    )
