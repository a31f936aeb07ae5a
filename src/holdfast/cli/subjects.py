"""`holdfast subjects`."""

from __future__ import annotations

import click

from holdfast.cli.invocation import Invocation
from holdfast.model.subject import KINDS, Kind


@click.command("subjects")
@click.option("--kind", type=click.Choice(KINDS), help="Only subjects of this kind.")
@click.pass_obj
def command(invocation: Invocation, kind: Kind | None) -> None:
    """List subjects and where each stands, the latest touched first."""
    from holdfast.model.moment import now
    from holdfast.server import shapes
    from holdfast.view.table import Column, table
    from holdfast.view.words import age, size

    with invocation.store() as store:
        found = [each for each in store.subjects() if kind in (None, each.subject.kind)]
        place = store.url
        invocation.doubt(store)
    time = now()
    columns = (
        Column("SUBJECT", "bold", cut=2),
        Column("HEAD", "yellow"),
        Column("COUNT", justify="right"),
        Column("SIZE", justify="right"),
        Column("WHEN", "dim"),
    )
    invocation.show(
        {"subjects": [shapes.subject(each) for each in found]},
        lambda: (
            table(
                columns,
                (
                    (
                        str(each.subject),
                        each.head.short if each.head else "-",
                        str(each.count),
                        size(each.size_bytes),
                        age(each.time, time),
                    )
                    for each in found
                ),
            )
            if found
            else ""
        ),
    )
    if not found:
        invocation.tell(f"no {f'{kind} ' if kind else ''}subjects in {place}")
