"""References: what people write to mean a checkpoint. Pure, over the catalogue.

An id, a short id (4 or more hex digits of the digest), a subject (its head), a tag; and any of
these followed by `~` or `~N` for an ancestor.
"""

from __future__ import annotations

import re
from collections.abc import Set

from holdfast.model.checkpoint import SHORT, Checkpoint
from holdfast.model.errors import BadInput, NotFound
from holdfast.model.subject import Subject
from holdfast.store.log.catalogue import Catalogue, Record, id_bytes

_HEX = re.compile(r"[0-9a-fA-F]{4,64}")
_TOO_SHORT = re.compile(r"[0-9a-fA-F]{1,3}")
_ANCESTOR = re.compile(r"(.+?)((?:~[0-9]{0,9})+)")
_SHOWN = 5


def resolve(catalogue: Catalogue, reference: str | Checkpoint) -> Record:
    """The checkpoint that is meant; raises NotFound or BadInput."""
    if isinstance(reference, Checkpoint):
        found = id_bytes(reference.id)
        if found is None:
            raise BadInput(f"not a checkpoint id: {reference.id!r}")
        return catalogue.record(found)
    steps = 0
    base = reference
    if match := _ANCESTOR.fullmatch(reference):
        base = match[1]
        steps = sum(int(step or "1") for step in match[2].split("~")[1:])
    record = _base(catalogue, base)
    for taken in range(steps):
        if not record.commit.parents:
            raise NotFound(
                f"{reference!r} goes back further than there is",
                hint=f"{base} has {taken} ancestor{'' if taken == 1 else 's'}",
            )
        record = catalogue.record(record.commit.parents[0])
    return record


def _base(catalogue: Catalogue, text: str) -> Record:
    if "/" in text:
        subject = Subject.parse(text)
        head = catalogue.head(str(subject))
        if head is None:
            raise _headless(catalogue, subject)
        return head
    if (found := id_bytes(text)) is not None:
        return catalogue.record(found)
    strange: Record | None = None
    for record in catalogue.newest_first():
        if text in record.tags:
            if not record.foreign:
                return record
            # A stranger must not be able to take a name of ours by giving it to something newer.
            strange = strange or record
    if strange is not None:
        return strange
    if _HEX.fullmatch(text):
        return _short(catalogue, text.lower())
    if _TOO_SHORT.fullmatch(text):
        raise NotFound(
            f"nothing is called {text!r}",
            hint="a short id has at least 4 digits; `holdfast list` shows them",
        )
    raise NotFound(
        f"nothing is called {text!r}",
        hint="give an id, a short id, a subject such as session/analysis, or a tag",
    )


def _headless(catalogue: Catalogue, subject: Subject) -> NotFound:
    name = str(subject)
    left = next((r for r in catalogue.newest_first() if r.commit.subject == name), None)
    if left is None and name not in catalogue.heads:
        return NotFound(f"there is no subject {name}", hint="`holdfast list` shows what there is")
    if left is None:
        return NotFound(f"{name} has no checkpoint any more")
    hint = f"`holdfast restore {left.checkpoint().short}` gives it a head again"
    return NotFound(f"{name} has no head", hint=hint)


def check_tag(name: str) -> None:
    """Raise BadInput unless the name can be told from the other kinds of reference."""
    if not name or not name.isprintable() or any(c in name for c in "/~ "):
        raise BadInput(f"bad tag: {name!r}", hint="a word without spaces, / or ~")
    if _HEX.fullmatch(name) or id_bytes(name):
        raise BadInput(f"bad tag: {name!r}", hint="it could be taken for a short id")


def _short(catalogue: Catalogue, prefix: str) -> Record:
    found = [r for r in catalogue.newest_first() if r.commit.digest.hex().startswith(prefix)]
    if not found:
        raise NotFound(f"no checkpoint begins with {prefix}", hint="`holdfast list` shows them")
    if len(found) > 1:
        longer = ", ".join(r.commit.digest.hex()[: SHORT + 4] for r in found[:_SHOWN])
        raise BadInput(f"{prefix} could be any of {len(found)} checkpoints: {longer}")
    return found[0]


def rollback_target(catalogue: Catalogue, subject: str) -> Record:
    """Where a plain rollback goes: the head's parent, or the parent of what it last went to."""
    head = catalogue.head(subject)
    if head is None:
        raise NotFound(f"{subject} has no checkpoint to go back from")
    base = head
    while base.commit.rollback_of is not None:
        base = catalogue.record(base.commit.rollback_of)
    parent = catalogue.record(base.commit.parents[0]) if base.commit.parents else None
    if parent is None or parent.commit.subject != subject:
        raise NotFound(
            f"{subject} is at its first checkpoint ({base.checkpoint().short})",
            hint="give the checkpoint to go to (`--to` on the command line)",
        )
    return parent


def nearest_left(catalogue: Catalogue, subject: str, doomed: Set[bytes]) -> bytes | None:
    """Where the head goes when the checkpoints in `doomed` go: to its nearest ancestor that stays.

    Where an ancestor in between was removed earlier, the lineage has a gap; then the head goes to
    where it last stood.
    """
    found = catalogue.head(subject)
    while found is not None and found.commit.id in doomed:
        found = catalogue.records.get(found.commit.parents[0]) if found.commit.parents else None
    if found is not None and found.commit.subject == subject:
        return found.commit.id
    for step in reversed(catalogue.steps.get(subject, ())):
        stood = step.after
        if stood in catalogue.records and stood not in doomed:
            return stood
    return None
