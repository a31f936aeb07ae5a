"""Which checkpoints a drill takes: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from holdfast.model.checkpoint import Checkpoint


def choose(
    heads: Iterable[Checkpoint],
    drilled: Mapping[str, tuple[str, str]],
    *,
    patterns: Sequence[str] = ("*",),
    most: int,
) -> list[Checkpoint]:
    """The heads that are due: of subjects that match a pattern, those first whose head was never
    drilled, then those whose drill is longest ago. `drilled` gives the checkpoint and the time of
    each subject's last drill."""

    def due(head: Checkpoint) -> tuple[bool, str]:
        checkpoint, time = drilled.get(str(head.subject), ("", ""))
        return checkpoint == head.id, time

    wanted = [
        head for head in heads if any(fnmatchcase(str(head.subject), each) for each in patterns)
    ]
    return sorted(wanted, key=due)[:most]
