"""Which checkpoints of a container get another form when it runs again, and giving it to them.

Two rules. No container is frozen for it: everything is made of what is kept already. And retention
drops only what nothing leans on any more; what would stand in its way is made whole first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.model.errors import HoldfastError
from holdfast.model.subject import Subject
from holdfast.oci.path_vault import PathVault
from holdfast.oci.policy import Policy
from holdfast.oci.vault import Saved

# Its owner wants the next increment and the next restore to be quick; at rest, only the next
# restore. By command, the newest is compressed, too.
Occasion = Literal["running", "resting", "archive"]


@dataclass(frozen=True, slots=True)
class Generation:
    """A checkpoint as far as it matters here."""

    id: str
    parent: str | None
    compressed: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What to make whole, oldest first, and what to compress."""

    fold: tuple[str, ...] = ()
    compress: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.fold or self.compress)


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done, and which bytes it left of how many."""

    plan: Plan
    dropped: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


def plan(generations: Sequence[Generation], policy: Policy, occasion: Occasion) -> Plan:
    """Of checkpoints, newest first, which to change. Pure."""
    kept = list(generations[: policy.keep])
    if not kept:
        return Plan()
    by_id = {each.id: each for each in generations}
    if occasion != "running":
        # The newest needs no other, so it can be restored lazily, and nothing else must stay raw.
        fold = {0, len(kept) - 1}
    elif len(_line(kept[0].id, by_id)) >= policy.line > 1:
        # The newest goes on leaning on a few, which costs one copy for several checkpoints.
        fold = {max(0, min(len(kept) - 1, policy.line // 2, policy.line - 2))}
    else:
        fold = set()
    folded = [kept[at].id for at in sorted(fold, reverse=True) if kept[at].parent is not None]
    after = {
        **by_id,
        **{each: Generation(each, None, by_id[each].compressed) for each in folded},
    }
    raw = set(_line(kept[0].id, after)) if _leaves_newest(policy, occasion) else set()
    compress = [
        each.id
        for each in reversed(kept)
        if policy.zstd != "never" or occasion == "archive"
        if each.id not in raw and (not each.compressed or each.id in folded)
    ]
    return Plan(tuple(folded), tuple(compress))


def _leaves_newest(policy: Policy, occasion: Occasion) -> bool:
    return policy.zstd != "all" and occasion != "archive"


def _line(checkpoint: str, generations: Mapping[str, Generation]) -> list[str]:
    """A checkpoint and all that it leans on."""
    found: list[str] = []
    at: str | None = checkpoint
    while at is not None and at in generations and at not in found:
        found.append(at)
        at = generations[at].parent
    return found


def look(vault: PathVault, subject: Subject, policy: Policy, occasion: Occasion) -> Plan:
    """The plan for a container's checkpoints as they are now."""
    generations = []
    for saved in vault.list(subject):
        parent = next(iter(vault.line(subject, saved.id)[1:]), None)
        generations.append(Generation(saved.id, parent, vault.is_compressed(subject, saved.id)))
    return plan(generations, policy, occasion)


def compact(
    vault: PathVault, subject: Subject, policy: Policy, occasion: Occasion
) -> tuple[Compacted, list[HoldfastError]]:
    """Carry out the plan, then retention. What cannot be rewritten stays as it was, and so does all
    that it leans on; gives what was done, and what could not be."""
    before = vault.list(subject)
    wanted = look(vault, subject, policy, occasion)
    folded: list[str] = []
    compressed: list[str] = []
    trouble: list[HoldfastError] = []
    for saved in reversed(before):
        fold, compress = saved.id in wanted.fold, saved.id in wanted.compress
        if not (fold or compress):
            continue
        try:
            smaller = vault.rewrite(saved, whole=fold, compress=compress)
        except HoldfastError as error:
            trouble.append(error)
            continue
        if fold:
            folded.append(saved.id)
        if smaller:
            compressed.append(saved.id)
    vault.keep(subject, policy.keep)
    after = vault.list(subject)
    made = Plan(tuple(folded), tuple(compressed))
    return Compacted(made, len(before) - len(after), _bytes(before), _bytes(after)), trouble


def _bytes(found: Sequence[Saved]) -> int:
    return sum(each.size_bytes for each in found)
