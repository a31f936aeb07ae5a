"""The pages for people: subjects, one subject's lineage, one checkpoint, the login.

They are pure: values in, HTML out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from holdfast.model.checkpoint import Checkpoint, Manifest
from holdfast.model.errors import HoldfastError
from holdfast.model.moment import to_text
from holdfast.model.report import Report
from holdfast.model.subject import Subject
from holdfast.server.markup import Child, Markup, element, group
from holdfast.server.style import STYLE
from holdfast.view.lineage import Lineage
from holdfast.view.words import age, count, notes, size, stage

if TYPE_CHECKING:
    from holdfast.store import SubjectSummary

_NUMBERS = ("Checkpoints", "Size")
MOST_ROWS = 500  # of one page; the rest is for `holdfast log` and the JSON

_FIRST_STEPS = """from holdfast import open_store

store = open_store({url!r})
with store.draft("state/first", reason="trying it out") as draft:
    draft.put("note", b"hello")
    draft.commit()"""


def _document(title: str, body: Markup, *, signed_in: bool) -> str:
    leave = element(
        "form", element("button", "Log out", type="submit"), method="post", action="/logout"
    )
    page = element(
        "html",
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("title", title),
            element("style", Markup(STYLE)),
        ),
        element(
            "body",
            element(
                "header", element("a", "Holdfast", href="/plain"), leave if signed_in else None
            ),
            element("main", body),
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page.html}\n"


def _column(title: str) -> str | None:
    return "number" if title in _NUMBERS else None


def _table(titles: Sequence[str], rows: Iterable[Sequence[Child]]) -> Markup:
    """A table that becomes a pile of cards on a phone."""
    return element(
        "table",
        element(
            "thead",
            element("tr", *(element("th", title, class_=_column(title)) for title in titles)),
        ),
        element(
            "tbody",
            *(
                element(
                    "tr",
                    *(
                        element("td", group(cell), data_label=title, class_=_column(title))
                        for title, cell in zip(titles, row, strict=True)
                    ),
                )
                for row in rows
            ),
        ),
        class_="cards",
    )


def _time(time: datetime, now: datetime) -> Markup:
    exact = to_text(time)
    return element("time", age(time, now), datetime=exact, title=exact)


def subject_path(subject: Subject) -> str:
    # A name may hold what a file system's bytes gave it; it still gets an address.
    return f"/plain/subjects/{subject.kind}/{quote(subject.name, safe='/', errors='surrogatepass')}"


def _subject_link(subject: Subject) -> Markup:
    return element("a", str(subject), href=subject_path(subject))


def _checkpoint_link(checkpoint: Checkpoint) -> Markup:
    return element("a", element("code", checkpoint.short), href=_checkpoint_path(checkpoint.id))


def _checkpoint_path(checkpoint: str) -> str:
    return f"/plain/checkpoints/{quote(checkpoint)}"


def _notes(checkpoint: Checkpoint, head: bool) -> Markup:
    return group(*(element("span", word, class_="note") for word in notes(checkpoint, head)))


def subjects(
    summaries: Sequence[SubjectSummary],
    now: datetime,
    url: str,
    *,
    signed_in: bool,
    has_site: bool,
) -> str:
    """The first page: every subject of the store."""
    if not summaries:
        body = group(
            element("h1", "Nothing is frozen yet"),
            element(
                "div",
                element("p", "This store is empty. Take a first checkpoint from Python:"),
                element("pre", _FIRST_STEPS.format(url=url)),
                element(
                    "p", "Then load this page again, or run ", element("code", "holdfast list")
                ),
                class_="card",
            ),
            None if has_site else _no_site(),
        )
        return _document("Holdfast", body, signed_in=signed_in)
    rows = [
        (
            element("span", summary.subject.kind, class_="soft"),
            element("a", summary.subject.name, href=subject_path(summary.subject)),
            _checkpoint_link(summary.head) if summary.head else "none",
            str(summary.count),
            size(summary.size_bytes),
            _time(summary.time, now),
        )
        for summary in summaries[:MOST_ROWS]
    ]
    body = group(
        element("h1", count(len(summaries), "subject")),
        element(
            "div",
            _table(("Kind", "Name", "Head", "Checkpoints", "Size", "When"), rows),
            class_="card",
        ),
        _abridged(len(summaries)),
        None if has_site else _no_site(),
    )
    return _document("Holdfast", body, signed_in=signed_in)


def _no_site() -> Markup:
    """What is missing where the dashboard was not built, and how to get it."""
    return element(
        "p",
        "These are the plain pages: this copy of Holdfast was installed without its dashboard. "
        "In its source folder, ",
        element("code", "make web"),
        " builds it, with Node 20 or newer; packages of releases have it inside.",
        class_="soft",
    )


def _abridged(total: int) -> Markup | None:
    if total <= MOST_ROWS:
        return None
    return element("p", f"The first {MOST_ROWS} of {total} are shown.", class_="soft")


def lineage(value: Lineage, now: datetime, *, signed_in: bool) -> str:
    """One subject: its checkpoints as a tree, newest first."""
    shorts = {each.id: each.short for each in value.checkpoints}
    origins = {each.id: each for each in value.origins}
    rows: list[tuple[Child, ...]] = []
    for row in value.rows[:MOST_ROWS]:
        graph = element("span", row.graph, class_="graph")
        if row.checkpoint is None:
            rows.append((graph, None, None, None, None, None))
            continue
        checkpoint = row.checkpoint
        remarks: list[Child] = [_notes(checkpoint, checkpoint.id == value.head)]
        target = shorts.get(checkpoint.rollback_of or "", "one that is not in this store")
        if checkpoint.rollback_of and target not in checkpoint.reason:
            remarks.append(f"back to {target} ")
        for parent in checkpoint.parents:
            if parent in origins:
                remarks += ["forked from ", _subject_link(origins[parent].subject), " "]
        for fork in value.forks:
            if checkpoint.id in fork.parents:
                remarks += ["forked to ", _subject_link(fork.subject), " "]
        rows.append(
            (
                graph,
                _checkpoint_link(checkpoint),
                checkpoint.reason + (f" [{stage(checkpoint)}]" if checkpoint.stage else ""),
                size(checkpoint.size_bytes),
                _time(checkpoint.time, now),
                group(*remarks),
            )
        )
    body = group(
        element("h1", str(value.subject)),
        element(
            "div",
            _table(("Lineage", "Checkpoint", "Reason", "Size", "When", "Notes"), rows),
            class_="card",
        ),
        _abridged(len(value.rows)),
    )
    return _document(str(value.subject), body, signed_in=signed_in)


def manifest(
    value: Manifest,
    head: bool,
    now: datetime,
    *,
    report: Report | None,
    shorts: Mapping[str, str],
    signed_in: bool,
) -> str:
    """One checkpoint: its facts, its parts and its report, never its content."""
    checkpoint = value.checkpoint
    parents = group(
        *(
            group(
                element("a", element("code", shorts[each]), href=_checkpoint_path(each))
                if each in shorts
                else "one that is not in this store",
                " ",
            )
            for each in checkpoint.parents
        )
    )
    facts: list[tuple[str, Child]] = [
        ("Subject", _subject_link(checkpoint.subject)),
        ("Reason", checkpoint.reason),
        ("Stage", checkpoint.stage or ""),
        ("When", _time(checkpoint.time, now)),
        ("Size", f"{size(checkpoint.size_bytes)} ({size(checkpoint.stored_bytes)} stored)"),
        ("Parents", parents if checkpoint.parents else ""),
        ("Notes", _notes(checkpoint, head)),
        ("Id", element("code", checkpoint.id)),
        ("Digest", element("code", checkpoint.digest)),
        ("Signed by", element("code", checkpoint.signer) if checkpoint.signer else ""),
    ]
    parts = [
        (element("code", part.name), size(part.size), element("span", part.split, class_="soft"))
        for part in value.parts
    ]
    body = group(
        element("h1", f"Checkpoint {checkpoint.short}"),
        element(
            "div",
            element(
                "table",
                *(
                    element("tr", element("th", name), element("td", fact))
                    for name, fact in facts
                    if fact != ""
                ),
            ),
            class_="card",
        ),
        element("h2", count(len(parts), "part")),
        element("div", _table(("Name", "Size", "Split"), parts[:MOST_ROWS]), class_="card"),
        _abridged(len(parts)),
        _report(report) if report and report.items else None,
    )
    return _document(f"Checkpoint {checkpoint.short}", body, signed_in=signed_in)


def _report(report: Report) -> Markup:
    rows = [
        (
            element("code", item.name),
            item.outcome,
            element("span", item.tier, class_="soft"),
            size(item.size_bytes) if item.size_bytes else None,
            item.reason,
        )
        for item in report.items
    ]
    return group(
        element("h2", f"Report: {count(len(rows), 'name')}"),
        element(
            "div",
            _table(("Name", "Outcome", "Tier", "Size", "Reason"), rows[:MOST_ROWS]),
            class_="card",
        ),
        _abridged(len(rows)),
    )


def login(target: str, wrong: bool = False) -> str:
    """The form that asks for the server's token."""
    form = element(
        "form",
        element("h1", "Holdfast"),
        element("label", "Token", for_="token"),
        element(
            "input",
            id="token",
            name="token",
            type="password",
            autocomplete="current-password",
            required=True,
            autofocus=True,
        ),
        element("input", type="hidden", name="next", value=target),
        element("p", "That is not the token.", role="alert") if wrong else None,
        element("button", "Log in", type="submit"),
        element(
            "p",
            "The token is in the line that begins with ",
            element("code", "token:"),
            " where the server was started.",
            class_="soft",
        ),
        method="post",
        action="/login",
        class_="login card",
    )
    return _document("Log in to Holdfast", form, signed_in=False)


def failure(error: HoldfastError, *, signed_in: bool) -> str:
    """An error, for somebody who came with a browser."""
    body = group(
        element("h1", str(error)),
        element("p", error.hint) if error.hint else None,
        element("p", element("a", "All subjects", href="/")),
    )
    return _document("Holdfast", body, signed_in=signed_in)
