"""`holdfast doctor`: what this machine can do, what is missing, and the command that mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation

if TYPE_CHECKING:
    from rich.console import RenderableType

    from holdfast.runtime.diagnosis import Diagnosis

STYLES = {"ok": "green", "limited": "yellow", "missing": "cyan", "broken": "red"}


@click.command("doctor")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Try what this machine can do, and say what is missing and what mends it.

    Every probe really runs: containers are started, frozen and brought back, memory is
    written and its dirty pages are read. This takes a few seconds and leaves nothing behind.
    Ends with code 0 when anything can be frozen here, and with 5 when nothing can.
    """
    from holdfast.model.errors import Unsupported
    from holdfast.model.home import home
    from holdfast.runtime.diagnosis import diagnose

    invocation = ctx.ensure_object(Invocation)
    if not invocation.json:
        invocation.tell("trying what this machine can do...")
    diagnosis = diagnose(home(invocation.environ), invocation.environ)
    invocation.show(document(diagnosis), lambda: page(diagnosis))
    if not diagnosis.usable:
        ctx.exit(Unsupported.exit_code)


def document(diagnosis: Diagnosis) -> dict[str, object]:
    """The diagnosis for programs."""
    return {
        "usable": diagnosis.usable,
        "levels": [
            {
                "level": str(ability.level),
                "usable": ability.usable,
                "engines": list(ability.engines),
                "note": ability.note,
            }
            for ability in diagnosis.abilities
        ],
        "findings": [
            {
                "name": finding.name,
                "status": str(finding.status),
                "detail": finding.detail,
                "mends": finding.mends,
                "enables": [str(level) for level in finding.enables],
            }
            for finding in diagnosis.findings
        ],
    }


def page(diagnosis: Diagnosis) -> str:
    """The diagnosis for people: the answer first, then the evidence, then what to do."""
    from rich.console import Group
    from rich.text import Text

    from holdfast.view.table import render

    parts: list[RenderableType] = [
        Text("What can be frozen here", style="bold"),
        _grid(
            [
                (
                    ("yes", "green") if ability.usable else ("no", "red"),
                    (str(ability.level), "bold"),
                    (_summary(ability.engines, ability.note), ""),
                )
                for ability in diagnosis.abilities
            ]
        ),
        Text("\nWhat was tried", style="bold"),
        _grid(
            [
                (
                    (str(finding.status), STYLES[finding.status]),
                    (finding.name, "bold"),
                    (finding.detail, ""),
                )
                for finding in diagnosis.findings
            ]
        ),
    ]
    mends = [finding for finding in diagnosis.findings if finding.mends is not None]
    if mends:
        parts.append(Text("\nWhat mends it", style="bold"))
        parts.append(
            _grid(
                [
                    ((finding.name, "bold"), (finding.mends or "", STYLES["missing"]))
                    for finding in mends
                ]
            )
        )
    return render(Group(*parts))


def _summary(engines: tuple[str, ...], note: str) -> str:
    return f"{note} ({', '.join(engines)})" if engines else note


def _grid(rows: list[tuple[tuple[str, str], ...]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for index in range(len(rows[0])):
        last = index == len(rows[0]) - 1
        grid.add_column(no_wrap=not last, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(text, style=style) for text, style in row))
    return grid
