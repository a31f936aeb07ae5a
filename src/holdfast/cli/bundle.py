"""`holdfast bundle`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli import remote
from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import (
    complete_reference,
    complete_subject,
    find,
    find_subject,
    trust_option,
)

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.subject import Subject
    from holdfast.store import Store


@click.group("bundle")
def command() -> None:
    """Bind several subjects under one id, and go back to all at once.

    What a server runs, the server binds; what another program runs, the program does, with
    holdfast.Bundle.
    """


_server = click.option(
    "--server",
    metavar="URL",
    help="The server that runs members; without it, the one that owns them.",
)


@command.command("make")
@click.argument("name")
@click.argument("subjects", nargs=-1, required=True, shell_complete=complete_subject)
@click.option("--reason", default="manual", show_default=True, help="Why it is made.")
@_server
@click.pass_obj
def make(
    invocation: Invocation, name: str, subjects: tuple[str, ...], reason: str, server: str | None
) -> None:
    """Freeze SUBJECTS together under NAME.

    What a server runs stands still for it, and so do containers of this node, for root; what nobody
    runs is bound by its head.
    """
    from holdfast.cli.rows import line
    from holdfast.model.subject import Subject
    from holdfast.server import shapes

    bundle = Subject("bundle", name.removeprefix("bundle/"))
    with invocation.store() as store:
        url = server or _owner(store, subjects)
        if url is not None:
            asked = {"name": bundle.name, "members": list(subjects), "reason": reason}
            told = remote.post(invocation, url, "/v1/bundles", asked)
            made = store.resolve(told["checkpoint"]["id"])
        else:
            made = _frozen(store, bundle, subjects, reason)
    invocation.show({"checkpoint": shapes.checkpoint(made)}, lambda: f"head: {line(made)}")


@command.command("show")
@click.argument("id", metavar="ID", shell_complete=complete_reference)
@trust_option
@click.pass_obj
def show(invocation: Invocation, id: str, trust: bool) -> None:  # noqa: A002
    """Show what a bundle binds; ID may be its subject, bundle/NAME."""
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
@_server
@trust_option
@click.pass_obj
def restore(invocation: Invocation, id: str, server: str | None, trust: bool) -> None:  # noqa: A002
    """Bring all members back to where a bundle has them, at once; ID may be bundle/NAME.

    What a server runs goes back by it; of what nobody runs, the head moves. A member that another
    program runs is refused, and then nothing has happened.
    """
    from holdfast.bundle import heads, record
    from holdfast.cli.rows import line
    from holdfast.server import shapes

    with invocation.store() as store:
        target = find(store, id)
        members = [each.subject for each in record.read(store, target, trust).members]
        url = server or _owner(store, members)
        if url is not None:
            path = f"/v1/checkpoints/{target.id}/members/restore"
            remote.post(invocation, url, path, {"trust": trust})
            now = [store.head(each) for each in (*members, str(target.subject))]
            moved = tuple(each for each in now if each is not None)
        else:
            moved = heads.restore(store, target, trust=trust)
    invocation.show(
        {"checkpoints": [shapes.checkpoint(each) for each in moved]},
        lambda: "\n".join(f"head: {line(each)}" for each in moved),
    )


def _frozen(store: Store, bundle: Subject, names: Sequence[str], reason: str) -> Checkpoint:
    """Bound here and now, without a server."""
    import asyncio

    from holdfast.bundle import Bundle, heads
    from holdfast.model.subject import Subject
    from holdfast.oci.member import ContainerMember, runs_here

    # One that runs here need not have a checkpoint yet.
    running = {n for n in names if n.startswith("container/") and runs_here(Subject.parse(n))}
    if not running:
        return heads.bind(store, bundle, [find_subject(store, each) for each in names], reason)
    members = [
        ContainerMember(store, Subject.parse(each))
        if each in running
        else heads.HeadMember(store, find_subject(store, each))
        for each in names
    ]
    return asyncio.run(Bundle(bundle.name, members, store=store).checkpoint(reason))


def _owner(store: Store, subjects: Sequence[str]) -> str | None:
    """The server that runs some of them, if one does and says where it is."""
    from holdfast.model.errors import UsageError

    owners = [store.owner(each) for each in subjects if "/" in each]
    told = [owner.url for owner in owners if owner is not None and owner.url is not None]
    urls = {url for url in told if url.startswith("http")}  # others are no servers
    if len(urls) > 1:
        raise UsageError(
            f"the subjects run on several servers: {', '.join(sorted(urls))}",
            hint="let one of them have all: attaching to a sandbox through it hands it over",
        )
    return urls.pop() if urls else None
