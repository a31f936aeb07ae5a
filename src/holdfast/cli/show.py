"""`holdfast show`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import complete_reference, files_option, find, trust_option

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint, Manifest
    from holdfast.model.report import Report
    from holdfast.session.layout import Cell
    from holdfast.store import Store

_BLOCK = 1 << 20


@click.command("show")
@click.argument("id", metavar="ID", shell_complete=complete_reference)
@click.option("--part", metavar="NAME", help="Write this part's bytes to stdout.")
@files_option
@trust_option
@click.pass_obj
def command(
    invocation: Invocation,
    id: str,  # noqa: A002
    part: str | None,
    files: bool,
    trust: bool,
) -> None:
    """Show a checkpoint and its parts, or write out one part.

    Of a session, a table says what each variable is, how it is kept and whether it changed since
    the parent, and the source of functions and classes follows.
    A part that was stored as a value (split "structure") is written as JSON.
    """
    from holdfast.cli import files as states
    from holdfast.server import shapes
    from holdfast.view import checkpoint as views

    if kept := states.meant(invocation, id, files):
        states.show(invocation, kept, part)
        return
    with invocation.store() as store:
        manifest = store.show(find(store, id))
        if part is not None:
            _write_part(store, manifest, part, trust)
            return
        report, lack = _report(store, manifest, trust)
        changed = code = None
        if report is not None:
            changed = views.changes(store, manifest, trust=trust)
            code = views.cells(store, manifest, trust=trust)
        shape = {
            **shapes.manifest(manifest, report),
            "changes": changed,
            "cells": None if code is None else [_cell(each) for each in code],
        }
        invocation.show(shape, lambda: _page(store, manifest, report, changed, code))
    if lack is not None:
        invocation.tell(f"the report cannot be shown: {lack}")


def _report(store: Store, manifest: Manifest, trust: bool) -> tuple[Report | None, str | None]:
    """The report, or why it cannot be had: that spoils nothing else."""
    from holdfast.model.errors import Corrupt, Denied
    from holdfast.view.reports import read_report
    from holdfast.view.words import printable

    try:
        return read_report(store, manifest, trust=trust), None
    except (Corrupt, Denied) as error:
        return None, printable(str(error))


def _cell(cell: Cell) -> dict[str, object]:
    return {"number": cell.number, "text": cell.text}


def _page(
    store: Store,
    manifest: Manifest,
    report: Report | None,
    changed: dict[str, str] | None,
    code: tuple[Cell, ...] | None,
) -> str:
    from holdfast.view import checkpoint as views
    from holdfast.view.table import Column, table
    from holdfast.view.words import size

    head = store.head(manifest.checkpoint.subject)
    shorts = {each.id: each.short for each in store.list()}
    facts = table(
        (Column("CHECKPOINT", "dim"), Column(manifest.checkpoint.short, "default")),
        _facts(manifest.checkpoint, head is not None and head.id == manifest.checkpoint.id, shorts),
    )
    parts = table(
        (Column("PART", "bold", cut=2), Column("SIZE", justify="right"), Column("SPLIT", "dim")),
        ((part.name, size(part.size), part.split) for part in manifest.parts),
    )
    pages = [facts, *([parts] if manifest.parts else [])]
    if report and report.items:
        pages.append(views.variables(report, changed or {}))
    if code:
        pages.append(views.code(code))
    return "\n\n".join(pages)


def _facts(checkpoint: Checkpoint, head: bool, shorts: Mapping[str, str]) -> list[tuple[str, str]]:
    from holdfast.model.moment import now
    from holdfast.view.words import age, day, notes, size

    def name(id: str) -> str:  # noqa: A002
        return shorts.get(id, f"{id} (not in this store)")

    facts = [
        ("id", checkpoint.id),
        ("subject", str(checkpoint.subject)),
        ("reason", checkpoint.reason),
        ("stage", checkpoint.stage or ""),
        ("time", f"{day(checkpoint.time)} UTC ({age(checkpoint.time, now())})"),
        ("size", f"{size(checkpoint.size_bytes)} ({size(checkpoint.stored_bytes)} stored)"),
        ("parents", ", ".join(name(each) for each in checkpoint.parents)),
        ("rollback of", name(checkpoint.rollback_of) if checkpoint.rollback_of else ""),
        ("notes", ", ".join(notes(checkpoint, head))),
        ("signed by", checkpoint.signer),
        ("digest", checkpoint.digest),
    ]
    return [(name, value) for name, value in facts if value]


def _write_part(store: Store, manifest: Manifest, name: str, trust: bool) -> None:
    from holdfast.model.errors import NotFound, UsageError

    part = manifest.part(name)
    if part is None:
        names = ", ".join(each.name for each in manifest.parts) or "none"
        raise NotFound(
            f"{manifest.checkpoint.short} has no part {name!r}", hint=f"its parts: {names}"
        )
    if part.split == "structure":
        from holdfast.view.values import to_json

        text = to_json(store.value(manifest.checkpoint, name, trust=trust))
        sys.stdout.write(text + "\n")
        return
    out = sys.stdout.buffer
    with store.open(manifest.checkpoint, name, trust=trust) as stream:
        while block := stream.read(_BLOCK):
            if out.isatty() and b"\0" in block:
                raise UsageError(
                    f"{name!r} is binary and would confuse the terminal",
                    hint="send it to a file: holdfast show ID --part NAME > file",
                )
            out.write(block)
    out.flush()
