"""`holdfast verify --drill`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.cli.invocation import Invocation
from holdfast.cli.reference import find

if TYPE_CHECKING:
    from holdfast.drill import Drill
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.store import Store


def run(
    invocation: Invocation,
    ids: Sequence[str],
    *,
    trust: bool,
    before: tuple[dict[str, object], str] | None = None,
) -> None:
    """Drill the checkpoints that are named, or every head. Raises Corrupt when one fails.

    `before` is what a check had to tell that came before, as data and as text.
    """
    from holdfast.drill import drill, noted
    from holdfast.model.errors import Corrupt
    from holdfast.server import shapes
    from holdfast.view.words import count

    done: list[Drill] = []
    with invocation.store() as store:
        wanted = [find(store, each) for each in ids] or list(_heads(store))
        for number, each in enumerate(wanted, 1):
            invocation.tell(f"{number} of {len(wanted)}: {each.short} of {each.subject}")
            done.append(asyncio.run(drill(store, each, trust=trust)))
        noted.note(store.url, done)
    failed = [each for each in done if not each.ok]
    told, page = before or ({}, "")
    ok = not failed and told.get("ok") is not False
    invocation.show(
        {**told, "ok": ok, "drills": [shapes.drill(each) for each in done]},
        lambda: "\n".join(
            [
                *([page] if page else []),
                *([line for each in done for line in _lines(each)] or ["nothing to drill"]),
            ]
        ),
    )
    if failed:
        raise Corrupt(
            f"{count(len(failed), 'drill')} failed",
            hint="an earlier checkpoint may do: `holdfast log SUBJECT`, `holdfast verify --deep`",
        )


def _heads(store: Store) -> Iterator[Checkpoint]:
    for each in store.subjects():
        if each.head is not None:
            yield each.head


def _lines(done: Drill) -> Iterator[str]:
    from holdfast.view.words import count, printable

    how = f"{count(done.items, 'item')} came back" if done.tried else "read"
    name = f"{done.checkpoint.short} of {done.checkpoint.subject}"
    yield f"{'ok' if done.ok else 'failed'}: {name} ({how}, {done.seconds:.1f} s)"
    yield from (f"  problem: {printable(each)}" for each in done.problems)
    yield from (f"  note: {printable(each)}" for each in done.notes)
