"""Memory that changed, before anything is pickled: the host can work on it while that is done.

It is only ahead, and nothing hangs on it: what a capture finds to be otherwise is sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.session.layout import BUFFERS
from holdfast.session.worker.labels import Labels
from holdfast.session.worker.memory.image import RUNS, Image
from holdfast.session.worker.memory.tracker import Place, Tracker, known_as
from holdfast.session.worker.surroundings import memory

MOST = 4 << 20  # bytes: more of them are not copied while the session waits
_SKEW = 16  # of an array's memory on its pages


def images(places: Mapping[Place, Any], labels: Labels, tracker: Tracker) -> dict[str, Image]:
    """What the host lacks of arrays that it has from an earlier capture, by the names of parts;
    nothing at all where that is much."""
    found: dict[str, Image] = {}
    needed = 0
    for place, owner in places.items():
        label = labels.known(*place)
        runs = tracker.changed(place, known_as(label, _SKEW)) if label is not None else None
        if not runs:
            continue
        bare = owner.view("i8") if owner.dtype.kind in "mM" else owner  # times have no buffers
        try:
            view = memory(bare)
        except ValueError:  # nor have records with times in them, at a place that had others
            continue
        image = Image(view, place[0], _SKEW, tracker.base, runs, tracker.looks(place))
        needed += image.needed
        if needed > MOST or len(runs) > RUNS:
            return {}
        found[f"{BUFFERS}{label}"] = image
    return found
