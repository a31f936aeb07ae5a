"""The power is cut at every operation that changes the disk.

Afterwards everything that was acknowledged is there, byte for byte, and the next one succeeds. And
no sync is there in vain: without any one of them, a cut loses something.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest
from tests.conftest import Progress
from tests.system import acts, outside

from holdfast.model.disk import ContainerSync, FileSync, ServerSync, SlotSync, StateSync, Sync
from holdfast.model.errors import HoldfastError
from holdfast.testing.lossfs import Loss
from holdfast.testing.power import Power, powered
from holdfast.testing.stage import Stage

# What is done, and what it finds before it: nothing, a store whose empty directories a backup has
# left out, or something of everything.
SCENES = (
    ("first", ""),
    ("small", "full"),
    ("row", "full"),
    ("large", "full"),
    ("large", "thin"),
    ("prune", "full"),
    ("files", ""),
    ("secrets", ""),
    ("states", ""),
    ("containers", ""),
    ("agents", ""),
)
# Above the store: nothing of it needs a sync of its own.
ABOVE = (("session", ""),)
# Somebody dies in the middle, and somebody else goes on.
SUCCESSIONS = (
    ("small", "full", "relay"),
    ("first", "", "first"),
    ("small", "full", "small"),
    ("row", "full", "row"),
    ("prune", "full", "small"),
    ("prune", "full", "prune"),
    ("small", "full", "prune"),
    ("states", "", "more_states"),
)
STRIDE = 97  # prime to the number of kinds of cuts, so that each kind is met everywhere
CUTS: tuple[tuple[Loss, int], ...] = (
    ("nothing", 0),
    ("names", 0),
    ("removals", 0),
    *(("scatter", seed) for seed in range(3)),
)


@dataclass(frozen=True)
class Trial:
    """An act that is cut off at one of its operations, and what the cut leaves.

    With an heir, only the actor dies there; the power goes when the heir is done.
    """

    act: str
    before: str
    at: int
    cut: tuple[Loss, int]
    heir: str = ""


@dataclass(frozen=True)
class Recording:
    """An act on a disk that kept what there was before each of its operations.

    One performance shows all places where the power may go. What a cut leaves is often the same
    for many of them, and need be looked at only once.
    """

    key: tuple[str, str, tuple[Sync, ...]]
    operations: int
    saved: tuple[tuple[int, str], ...]  # after which operation, and what was acknowledged
    heirs: dict[tuple[int, str], frozenset[str]]  # what heirs acknowledged that went on from there
    judged: dict[tuple[str, frozenset[str]], str]  # what is wrong with a disk, given the promises

    def acknowledged(self, at: int) -> set[str]:
        """What was promised before operation `at`."""
        return {checkpoint for after, checkpoint in self.saved if after < at}


@dataclass
class House:
    """A stage, and a disk that forgets."""

    stage: Stage
    power: Power
    promised: dict[str, tuple[str, ...]]
    recording: Recording | None = None

    def record(self, act: str, before: str, drop: tuple[Sync, ...]) -> Recording:
        """Do an act and keep every moment of it; the last one is kept until the next."""
        key = (act, before, drop)
        if self.recording is not None and self.recording.key == key:
            return self.recording
        self.power.load(before)
        self.power.record()
        done = self.stage.perform("observed", str(self.power.root), act, list(drop))
        assert done.status == 0, done
        assert not done.noted("error"), done
        assert not done.noted("fault"), done
        operations = self.power.operations
        self.power.keep(str(operations + 1))
        saved = tuple((note["at"], note["saved"]) for note in done.notes if "saved" in note)
        self.recording = Recording(key, operations, saved, {}, {})
        return self.recording

    def wrong(self, trial: Trial, drop: tuple[Sync, ...] = ()) -> str:
        """What is wrong after this; empty when nothing is."""
        recording = self.record(trial.act, trial.before, drop)
        at = min(trial.at, recording.operations + 1)
        promised = recording.acknowledged(at)
        if trial.heir:
            promised |= self._inherited(recording, at, trial, drop)
        else:
            self.power.go_back(str(at))
        self.power.cut(*trial.cut)
        pruned = "prune" in (trial.act, trial.heir)
        promised.update(self.promised["pinned" if pruned else trial.before])
        image = self.power.digest, frozenset(promised)
        if image not in recording.judged:
            recording.judged[image] = "; ".join(self._losses(promised))
        return recording.judged[image]

    def told(self, act: str, before: str, at: int) -> list[str]:
        """What an actor says for whom the power goes just before operation `at`: faults alone."""
        self.power.load(before)
        self.power.cut_at(at)
        return self.stage.perform(act, str(self.power.root), []).noted("fault")

    def _inherited(
        self, recording: Recording, at: int, trial: Trial, drop: tuple[Sync, ...]
    ) -> frozenset[str]:
        """Go back to where an heir was done that went on at this moment; what it acknowledged."""
        scene = at, trial.heir
        kept = f"{at}-{trial.heir}"
        if scene in recording.heirs:
            self.power.go_back(kept)
        else:
            self.power.go_back(str(at))
            done = self.stage.perform(trial.heir, str(self.power.root), list(drop))
            faults = done.noted("fault")
            assert not faults, f"{trial}: not an error of ours:\n{faults[0]}"
            self.power.keep(kept)
            recording.heirs[scene] = frozenset(done.noted("saved"))
        return recording.heirs[scene]

    def _losses(self, promised: set[str]) -> list[str]:
        """What is wrong now that the power is back."""
        files = {one for one in promised if one.startswith(str(self.power.root))}
        states = {one for one in files if one.startswith(f"{self.power.root / acts.STATES}/=")}
        checkpoints = promised - files
        outer = {one for one in files if one.startswith(f"{self.power.root}/=")}
        lost = acts.file_losses(files - states - outer)
        lost = lost or acts.state_losses(str(self.power.root), states)
        lost = lost or outside.losses(str(self.power.root), outer)
        if lost:
            return lost
        try:
            # Whoever has an acknowledged checkpoint need not make a store to find it.
            with acts.open_at(str(self.power.root), create=not checkpoints) as store:
                lost = acts.losses(store, checkpoints) or acts.session_losses(store)
                return lost or acts.goes_on(store)
        except HoldfastError as error:
            return [f"{error.kind}: {error}"]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[House]:
    mountpoint = tmp_path_factory.mktemp("power") / "disk"
    with powered(mountpoint) as power, Stage("tests.system.acts", repository) as stage:
        thin = stage.perform("thin", str(mountpoint))
        power.save("thin")
        power.load()
        full = stage.perform("prepare", str(mountpoint))
        power.save("full")
        assert not thin.noted("fault") + full.noted("fault")
        promised = {"": (), "pinned": tuple(full.noted("pinned"))}
        for name, prepared in (("thin", thin), ("full", full)):
            promised[name] = tuple(prepared.noted("saved"))
        yield House(stage, power, promised)


def check(house: House, trials: list[Trial], progress: Progress) -> None:
    wrong: dict[Trial, str] = {}
    for done, trial in enumerate(trials):
        if found := house.wrong(trial):
            wrong[trial] = found
        progress(done + 1, len(trials))
    said = "\n".join(f"{trial}: {found}" for trial, found in wrong.items())
    assert not wrong, f"{len(wrong)} of {len(trials)} cuts lose something:\n{said}"


def cuts_of(
    house: House, act: str, before: str, heir: str = "", drop: tuple[Sync, ...] = ()
) -> list[Trial]:
    """Each kind of cut at each operation of an act, and after the last; the latest first."""
    last = house.record(act, before, drop).operations + 1
    kinds = CUTS[:3] if heir else CUTS
    return [Trial(act, before, at, cut, heir) for at in range(last, 0, -1) for cut in kinds]


def some(trials: list[Trial]) -> list[Trial]:
    """The cuts after the last operation, and a few before."""
    ends = len(CUTS)
    return [*trials[:ends], *trials[ends::STRIDE]]


@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("act", "before"), SCENES + ABOVE)
def test_a_disk_that_is_gone_is_told_in_words(
    house: House, act: str, before: str, stride: int
) -> None:
    last = house.record(act, before, ()).operations
    faults = [fault for at in range(1, last + 1, stride) for fault in house.told(act, before, at)]
    assert not faults, f"{len(faults)} errors that are not ours:\n{faults[0]}"


@pytest.mark.parametrize(("act", "before"), SCENES + ABOVE)
def test_a_cut_loses_nothing(house: House, act: str, before: str, progress: Progress) -> None:
    check(house, some(cuts_of(house, act, before)), progress)


@pytest.mark.parametrize(("act", "before", "heir"), SUCCESSIONS)
def test_an_heir_builds_on_solid_ground(
    house: House, act: str, before: str, heir: str, progress: Progress
) -> None:
    check(house, some(cuts_of(house, act, before, heir)), progress)


@pytest.mark.soak
@pytest.mark.parametrize(("act", "before"), SCENES + ABOVE)
def test_no_cut_loses_anything(house: House, act: str, before: str, progress: Progress) -> None:
    check(house, cuts_of(house, act, before), progress)


@pytest.mark.soak
@pytest.mark.parametrize(("act", "before", "heir"), SUCCESSIONS)
def test_every_heir_builds_on_solid_ground(
    house: House, act: str, before: str, heir: str, progress: Progress
) -> None:
    check(house, cuts_of(house, act, before, heir), progress)


# The only act in which some are done.
WHERE = {
    **dict.fromkeys(get_args(FileSync), "files"),
    **dict.fromkeys(get_args(SlotSync), "secrets"),
    **dict.fromkeys(get_args(StateSync), "states"),
    **dict.fromkeys(get_args(ContainerSync), "containers"),
    **dict.fromkeys(get_args(ServerSync), "agents"),
}
# Those of the store take long to show; that the search finds anything at all is shown by one.
QUICK = ("log names", *WHERE)
DROPPED = [each for each in get_args(Sync) if each != "probe"]  # which promises nothing
SYNCS = [each if each in QUICK else pytest.param(each, marks=pytest.mark.soak) for each in DROPPED]


@pytest.mark.parametrize("sync", SYNCS)
def test_no_sync_is_there_in_vain(house: House, sync: Sync) -> None:
    """Leave out one sync, and something is lost."""
    tried = 0
    for trial in _likely_first(house, (sync,)):
        tried += 1
        if house.wrong(trial, (sync,)):
            return
    pytest.fail(f"nothing was lost in {tried} trials without the sync of {sync!r}: is it needed?")


def _likely_first(house: House, drop: tuple[Sync, ...]) -> Iterator[Trial]:
    if drop[0] in WHERE:
        yield from cuts_of(house, WHERE[drop[0]], "", drop=drop)
        return
    for act, before in SCENES:
        yield from cuts_of(house, act, before, drop=drop)[:3]
    beginning = cuts_of(house, *SCENES[0], drop=drop)
    yield from beginning[: 8 * len(CUTS)]
    yield from cuts_of(house, *SUCCESSIONS[0], drop=drop)
    yield from beginning
    for act, before, heir in SUCCESSIONS[1:]:
        yield from cuts_of(house, act, before, heir, drop)
    for act, before in SCENES[1:]:
        yield from cuts_of(house, act, before, drop=drop)
