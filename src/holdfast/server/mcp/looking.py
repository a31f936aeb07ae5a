"""Looking into a store for an agent: nothing that a checkpoint holds is run. Blocking."""

from __future__ import annotations

from holdfast.model.errors import Corrupt, Denied, NotFound
from holdfast.model.subject import Subject
from holdfast.server import contents, shapes
from holdfast.server.mcp.answers import Compared, Known, Listed, Moment
from holdfast.session.variables import compare
from holdfast.store import Store
from holdfast.view.contents import look
from holdfast.view.reports import read_report


def listed(store: Store, subject: Subject | None, limit: int, running: frozenset[str]) -> Listed:
    """A session and its checkpoints, or all sessions and the latest checkpoints of any."""
    store.refresh()
    known = [
        each
        for each in store.subjects()
        if each.subject.kind == "session" and subject in (None, each.subject)
    ]
    if not known and subject is not None and str(subject) not in running:
        raise NotFound(f"there is no subject {subject}", hint="`list` without one names them")
    subjects = [
        Known(
            subject=str(each.subject),
            checkpoints=each.count,
            head=each.head.short if each.head else None,
            running=str(each.subject) in running,
        )
        for each in known[:limit]
    ]
    told = {each.subject for each in subjects}
    new = sorted(running - told) if subject is None else sorted({str(subject)} & running - told)
    subjects += [Known(subject=each, checkpoints=0, running=True) for each in new]
    return Listed(
        subject="" if subject is None else str(subject),
        subjects=tuple(subjects),
        checkpoints=tuple(Moment.of(each) for each in store.list(subject, "session", limit)),
    )


def compared(store: Store, subject: Subject, before: str, after: str) -> Compared:
    """What changed from one checkpoint to another. Raises NotFound."""
    store.refresh()
    found = store.diff(before, after)
    return Compared.read(contents.difference(found, compare(store, found)), str(subject))


def shown(store: Store, subject: Subject, reference: str) -> dict[str, object]:
    """A checkpoint of this subject, with its report and its contents. Raises NotFound."""
    store.refresh()
    manifest = store.show(reference)
    if manifest.checkpoint.subject != subject:
        raise NotFound(f"{reference} is no checkpoint of {subject}")
    try:
        report = read_report(store, manifest)
        inside = contents.contents(look(store, manifest))
    except (Corrupt, Denied):
        report = inside = None  # what cannot be trusted is not looked into
    return {**shapes.manifest(manifest, report), "contents": inside}
