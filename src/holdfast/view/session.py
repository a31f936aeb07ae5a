"""What a prompt shows of a session, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.view import magics
from holdfast.view.table import Column, table
from holdfast.view.words import count, size

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.report import Item, Report
    from holdfast.model.subject import Subject
    from holdfast.protocol.session_messages import Variable
    from holdfast.session.result import Result
    from holdfast.store import Store
    from holdfast.store.comparison import Diff

_NAMED = 5  # items that one line names; the rest is counted


def help_page() -> str:
    return table((Column("", "bold"), Column("")), magics.overview(), headings=False)


def value_of(result: Result) -> str:
    """The value of a cell as a Python prompt shows it; nothing for None."""
    from holdfast.session.result import Repr

    if result.value is None:
        return ""
    return str(result.value) if isinstance(result.value, Repr) else repr(result.value)


def log_page(store: Store, subject: Subject) -> str:
    """The lineage of a session, drawn."""
    from holdfast.view.lineage import trace
    from holdfast.view.tree import tree

    head, everything = store.head(subject), store.list()
    lineage = trace(subject, everything, head.id if head else None, store.history(subject))
    return tree(lineage, {each.id: each.short for each in everything})


def whos_page(store: Store, subject: Subject, variables: Iterable[Variable]) -> str:
    """The variables that are there now, with what the head did with each, and what changed."""
    from holdfast.session.variables import compare
    from holdfast.view.reports import read_report

    head = store.head(subject)
    report = read_report(store, store.show(head)) if head else None
    items = {item.name: item for item in report.items} if report else {}
    changes = []
    if head is not None and head.parents:
        changes = compare(store, store.diff(head.parents[0], head.id)) or []
    return whos(variables, items, {each.name: each.change for each in changes})


def diff_page(store: Store, diff: Diff) -> str:
    """What changed between two checkpoints, variable by variable."""
    from holdfast.session.variables import compare
    from holdfast.view.difference import page

    return page(diff, compare(store, diff), everything=False) or "nothing changed"


def moved(store: Store, subject: Subject, report: Report) -> list[str]:
    """Where a restore or a rollback went, and what came back."""
    head = store.head(subject)
    where = [f"now at {head.short}: {head.reason}"] if head is not None else []
    return where + came_back(report)


def next_cell(store: Store, checkpoint: Checkpoint, trust: bool) -> int:
    """The number of the cell that is run next after this checkpoint."""
    environment = store.value(checkpoint, "environment", trust=trust)
    ran = environment.get("execution_count", 0) if isinstance(environment, dict) else 0
    return ran + 1 if isinstance(ran, int) else 1


def whos(
    variables: Iterable[Variable], items: Mapping[str, Item], changed: Mapping[str, str]
) -> str:
    """The variables, with what the last checkpoint did with each."""
    rows = [
        (
            each.name,
            each.type_name,
            each.summary,
            size(each.size_bytes),
            _kept(items.get(each.name)),
            changed.get(each.name, ""),
        )
        for each in variables
    ]
    if not rows:
        return "no variables"
    columns = (
        Column("VARIABLE", "bold"),
        Column("TYPE", "cyan", cut=2),
        Column("WHAT", cut=1),
        Column("SIZE", "dim", justify="right"),
        Column("KEPT", cut=1),
        Column("CHANGED", "yellow", optional=True),
    )
    return table(columns, rows)


def _kept(item: Item | None) -> str:
    if item is None:
        return "not yet"
    if item.outcome in ("placeholder", "skipped"):
        return f"{item.outcome}: {item.reason}"
    return item.outcome if item.tier in ("", "cloudpickle") else f"{item.outcome} ({item.tier})"


def came_back(report: Report) -> list[str]:
    """What a restore did, in a line or two: what came back, and what did not, and why."""
    back = [item.name for item in report.items if item.outcome in ("exact", "rebuilt")]
    lost = [item for item in report.items if item.outcome not in ("exact", "rebuilt")]
    named = ", ".join(back[:_NAMED])
    more = f" and {len(back) - _NAMED} more" if len(back) > _NAMED else ""
    lines = [f"{count(len(back), 'name')} came back: {named}{more}"] if back else []
    return lines + [lost_line(item) for item in lost]


def lost_line(item: Item) -> str:
    """What did not come back, or not all of it, and why."""
    from holdfast.session.layout import HOLDS, LEFT_OUT

    within = item.reason.startswith((HOLDS, LEFT_OUT))
    how = "came back with a placeholder inside" if within else "did not come back"
    return f"{item.name} {how}: {item.reason}"
