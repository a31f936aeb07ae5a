"""A checkpoint is killed, or refused by the disk, at every system call that changes something.

Afterwards everything that was acknowledged is there, byte for byte, and the next one succeeds.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import Progress
from tests.system import acts

from holdfast.testing.stage import Performance, Stage

CALLS = (
    *("write", "pwrite64", "pwritev", "pwritev2", "truncate", "ftruncate", "fallocate"),
    *("fsync", "fdatasync"),
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "mkdir"),
)
ACTS = ("small", "row", "large", "first", "prune")
# What an act is there for besides: the runway that is cut off, the reserve that is made.
BESIDES = {"row": {"truncate"}, "first": {"fallocate"}}
KILL = "signal=KILL"
ERRORS = {"error=EIO": "fault", "error=ENOSPC": "storage_full"}


@dataclass(frozen=True)
class Theatre:
    """A stage, and a store to be hurt: each act gets a copy of its own."""

    stage: Stage
    template: Path
    promised: tuple[str, ...]
    folder: Path

    def fresh(self, act: str) -> str:
        base = self.folder / "base"
        shutil.rmtree(base, ignore_errors=True)
        if act != "first":
            shutil.copytree(self.template, base)
        return str(base)

    def survives(self, act: str, fault: str, kinds: tuple[str, ...]) -> list[str]:
        """What is wrong after this act with this fault."""
        base = self.fresh(act)
        done = self.stage.perform(act, base, faults=[fault])
        wrong = _behaved(done, fault, kinds)
        promised = {*done.noted("saved"), *(self.promised if act != "first" else ())}
        store = acts.open_at(base, create=act == "first")
        try:
            if act == "prune":
                # What retention gave up may be there still, but then it must be whole.
                promised -= set(self.promised) - _kept(self.promised, store.list())
            wrong += acts.losses(store, promised)
            wrong += acts.goes_on(store)
        finally:
            store.close()
        return [f"{act} with {fault}: {what}" for what in wrong]


def _kept(promised: tuple[str, ...], listed: list[acts.Checkpoint]) -> set[str]:
    """The newest of each subject of the template, and the pinned one."""
    heads: dict[str, str] = {}
    for one in sorted(listed, key=lambda one: one.sequence):
        if one.id in promised:
            heads[str(one.subject)] = one.id
    assert heads.keys() >= {"state/log", "sandbox/packs", "state/small"}, "a subject lost its head"
    return {*heads.values(), *(one.id for one in listed if one.pinned)}


def _behaved(done: Performance, fault: str, kinds: tuple[str, ...]) -> list[str]:
    """Whether the actor died of its kill, or said its error as Holdfast does."""
    wrong = [f"not an error of ours:\n{trace}" for trace in done.noted("fault")]
    if done.status not in (0, -signal.SIGKILL if KILL in fault else 0):
        wrong.append(f"the actor ended with {done.status}")
    for note in done.notes:
        said_well = note.get("error") in (None, *kinds) and note.get("hint", True)
        wrong += [] if said_well else [f"{note} is not of kind {kinds}, or has no hint"]
    if done.status == 0 and not done.noted("saved"):
        wrong.append(f"no try succeeded: {done.notes}")
    return wrong


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Theatre]:
    folder = tmp_path_factory.mktemp("crash")
    with Stage("tests.system.acts", repository) as stage:
        prepared = stage.perform("prepare", str(folder / "template"))
        assert prepared.status == 0, prepared
        assert not prepared.noted("fault"), prepared
        yield Theatre(stage, folder / "template", tuple(prepared.noted("saved")), folder)


def sweep(theatre: Theatre, act: str, fault: str, stride: int, progress: Progress) -> None:
    """Hurt an act at every `stride`th call of each kind, the first and the last always."""
    counts = theatre.stage.count(act, theatre.fresh(act), calls=CALLS)
    # Whatever is saved by doing less: what is acknowledged was written and synced.
    assert {"pwrite64", "fdatasync"} <= counts.keys(), f"the act makes nothing durable: {counts}"
    assert BESIDES.get(act, set()) <= counts.keys(), f"the act leaves something out: {counts}"
    kinds = tuple(kind for error, kind in ERRORS.items() if error in fault)
    plan = [
        f"{call}:{fault}:when={when}"
        for call, times in sorted(counts.items())
        for when in sorted({1, times, *range(1, times + 1, stride)})
    ]
    wrong: list[str] = []
    for done, injected in enumerate(plan):
        wrong += theatre.survives(act, injected, kinds)
        progress(done + 1, len(plan))
    assert not wrong, f"{len(wrong)} of {len(plan)} runs:\n" + "\n".join(wrong[:12])


@pytest.mark.parametrize("fault", [KILL, *ERRORS])
@pytest.mark.parametrize("act", ACTS)
def test_sweep(theatre: Theatre, act: str, fault: str, progress: Progress) -> None:
    sweep(theatre, act, fault, 17, progress)


@pytest.mark.soak
@pytest.mark.parametrize("fault", [KILL, *ERRORS])
@pytest.mark.parametrize("act", ACTS)
def test_sweep_of_every_call(theatre: Theatre, act: str, fault: str, progress: Progress) -> None:
    sweep(theatre, act, fault, 1, progress)
