"""Numbers for Prometheus, in its text form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast import __version__

if TYPE_CHECKING:
    from holdfast.sandbox.fleet import Fleet
    from holdfast.server.drills import Drills
    from holdfast.store import SubjectSummary

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def page(subjects: list[SubjectSummary], fleet: Fleet | None, drills: Drills) -> str:
    """Everything there is to count."""
    return "".join(_lines(subjects, fleet, drills))


def _lines(subjects: list[SubjectSummary], fleet: Fleet | None, drills: Drills) -> Iterator[str]:
    yield from _metric("build_info", "gauge", "The version.", {f'{{version="{__version__}"}}': 1})
    kinds: dict[str, int] = {}
    counts: dict[str, int] = {}
    for each in subjects:
        label = f'{{kind="{each.subject.kind}"}}'
        kinds[label] = kinds.get(label, 0) + 1
        counts[label] = counts.get(label, 0) + each.count
    yield from _metric("subjects", "gauge", "Subjects in the store.", kinds)
    yield from _metric("checkpoints", "gauge", "Checkpoints in the store.", counts)
    for name, value in drills.counters.items():
        yield from _metric(f"drills_{name}_total", "counter", f"Drills: {name}.", {"": value})
    failing = {"": drills.failing}
    yield from _metric("drills_failing", "gauge", "Subjects whose last drill failed.", failing)
    if fleet is None:
        return
    live = list(fleet.live.values())
    yield from _metric("sandboxes", "gauge", "Sandboxes that run here.", {"": len(live)})
    busy = sum(each.executing for each in live)
    yield from _metric("sandboxes_executing", "gauge", "Of these, busy ones.", {"": busy})
    attached = sum(each.client is not None for each in live)
    yield from _metric("sandboxes_attached", "gauge", "Of these, with a client.", {"": attached})
    yield from _metric("sandboxes_ready", "gauge", "Standing ready to be used.", {"": fleet.ready})
    waiting, refused = fleet.admission.gate.waiting, fleet.admission.refused
    yield from _metric("sandboxes_waiting", "gauge", "In line to be made.", {"": waiting})
    yield from _metric("sandboxes_refused_total", "counter", "Over a limit.", {"": refused})
    for name, value in sorted(fleet.counters.items()):
        yield from _metric(f"sandbox_{name}_total", "counter", f"Sandboxes: {name}.", {"": value})


def _metric(name: str, kind: str, text: str, values: dict[str, int]) -> Iterator[str]:
    yield f"# HELP holdfast_{name} {text}\n# TYPE holdfast_{name} {kind}\n"
    for label, value in values.items():
        yield f"holdfast_{name}{label} {value}\n"
