"""Tables on terminals: what may be cut is cut, and what people type never is."""

from __future__ import annotations

import os
import re

import pexpect
import pytest
from tests.cli.conftest import HOLDFAST

from holdfast.store import open_store
from holdfast.view.table import GAP, LEAST, Column, fit

COLUMNS = (Column("ID"), Column("SUBJECT", cut=2), Column("REASON", cut=1), Column("NOTES", cut=1))


def total(widths: list[int]) -> int:
    there = [width for width in widths if width]
    return sum(there) + GAP * (len(there) - 1)


@pytest.mark.parametrize("limit", range(20, 100))
def test_columns_give_way_in_their_order(limit: int) -> None:
    natural = [8, 20, 30, 12]
    widths = fit(COLUMNS, natural, limit)
    assert total(widths) <= max(limit, 8 + GAP + LEAST)
    assert widths[0] == 8
    assert all(width <= most for width, most in zip(widths, natural, strict=True))
    if widths[1] < 20:
        assert all(width <= LEAST for width in widths[2:])
    if limit >= total(natural):
        assert widths == natural


def on_terminal(command: str, columns: int) -> list[str]:
    environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    shown = pexpect.run(
        f"{HOLDFAST} {command}",
        env={**environ, "TERM": "xterm-256color"},
        dimensions=(40, columns),
        timeout=30,
        encoding="utf-8",
    )
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    return [line for line in lines if line.strip()]


@pytest.mark.parametrize("columns", [80, 60])
def test_ids_times_and_sizes_are_never_cut(columns: int) -> None:
    with open_store() as store:
        for number in range(4):
            subject = "session/a-rather-long-name-of-an-analysis"
            with store.draft(subject, reason=f"after a long cell, number {number}") as draft:
                draft.put("bytes", bytes([number]) * 123_456)
                made = draft.commit()
        store.tag(made, "a-long-tag", "0.123456789")
        for name in "abc":
            store.fork(made, f"a-long-name-of-a-fork-{name}")
        shorts = [each.short for each in store.list()]

    shown = on_terminal("list", columns)
    assert shown[0].split()[:3] == ["ID", "SUBJECT", "REASON"]
    assert "STAGE" not in shown[0]
    assert [line.split()[0] for line in shown[1:]] == shorts
    for line in shown[1:]:
        assert re.search(r"\d+ s ago +123 kB", line)

    plan = on_terminal("prune --keep-last 1 --dry-run", columns)
    for line in plan[1:-1]:
        assert re.match(r"(keep  |remove)  [0-9a-f]{8}  ", line)
        assert re.search(r"\d+ s ago +123 kB", line)

    tree = on_terminal("log session/a-rather-long-name-of-an-analysis", columns)
    assert [line.split()[1] for line in tree] == shorts[3:]
    places = {line.index(" ago") for line in tree}
    assert len(places) == 1, "columns line up"
    for line in (*shown, *plan[:-1], *tree):
        assert len(line) <= columns
