"""An application's state: all of it is decoded, written again and compared.

No instance of the application's classes is built: classes, migrations and secrets are the
application's own, and a state is not broken because this process does not have them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from holdfast.drill.scratch import Scratch, Trial
from holdfast.model.checkpoint import Part
from holdfast.model.errors import HoldfastError
from holdfast.state import document, values
from holdfast.state.shelf import PART
from holdfast.store.parts.trees import Plain

_CHUNK = 1 << 20


async def try_state(scratch: Scratch) -> Trial:
    """Read every part of it, decode its values, and write them again."""
    return await asyncio.to_thread(_try, scratch)


def _try(scratch: Scratch) -> Trial:
    problems: list[str] = []
    notes: list[str] = []
    items = 0
    for part in scratch.store.show(scratch.checkpoint).parts:
        try:
            if part.split != "structure":
                _read(scratch, part.name)
                items += 1
                continue
            value = scratch.store.value(scratch.checkpoint, part.name, trust=scratch.trust)
            if part.name == PART and isinstance(value, dict) and "state_info" in value:
                items += len(value["state_info"])
                notes += _survey(value, scratch.checkpoint.subject.name)
            else:
                items += 1
            if not _is_same_again(scratch, part, value):
                problems.append(f"{part.name} is not what it was when it is written again")
        except HoldfastError as error:
            problems.append(f"{part.name} cannot be read: {error}")
    return Trial(problems=tuple(problems), notes=tuple(notes), items=items)


def _read(scratch: Scratch, part: str) -> None:
    with scratch.store.open(scratch.checkpoint, part, trust=scratch.trust) as stream:
        while stream.read(_CHUNK):
            pass  # every chunk is verified as it is read


def _survey(part: dict[str, object], name: str) -> Iterator[str]:
    """What its values are made of. Raises Corrupt and Unsupported."""
    described = {"session_id": name, "timestamp": "2000-01-01T00:00:00Z", "reason": "", "stage": ""}
    found = values.survey(document.from_raw({**described, **part}, name).state_info)
    if found.classes:
        yield f"the application has to know {', '.join(sorted(found.classes))}"
    if found.secrets:
        yield f"the application has to give {', '.join(found.secrets)}"


def _is_same_again(scratch: Scratch, part: Part, value: object) -> bool:
    """Whether the value is the same when it is written again and read."""
    with scratch.store.draft("state/drill", reason="drill") as draft:
        draft.put(part.name, Plain(value), split="structure")
        made = draft.commit()
    again = scratch.store.show(made).part(part.name)
    if again is not None and again.root == part.root:
        return True
    with scratch.reopened() as store:  # this store remembers the value itself
        return bool(store.value(made.id, part.name) == value)
