"""`holdfast init`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation


@click.command("init")
@click.argument("url", required=False)
@click.pass_obj
def command(invocation: Invocation, url: str | None) -> None:
    """Make a store, where there is none yet.

    URL is a path or file:///path; without it, the store that the settings name is made. The first
    checkpoint makes its store by itself, so this is only needed to have an empty one.
    """
    from holdfast.model.errors import BadInput, NotFound

    place = url or str(invocation.settings()["store"].value)
    if place.startswith("memory:"):
        raise BadInput("a store in memory is gone when the command ends", hint="name a directory")
    made = False
    try:
        store = invocation.open(place, create=False)
    except NotFound:
        store = invocation.open(place, create=True)
        made = True
    with store:
        where = store.url
    invocation.show(
        {"store": where, "made": made},
        lambda: f"made a store at {where}" if made else f"there is a store at {where} already",
    )
