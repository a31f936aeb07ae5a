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
from tests.system import acts

from holdfast.model.errors import HoldfastError
from holdfast.store.backends.disk import Sync
from holdfast.testing.lossfs import Loss
from holdfast.testing.power import Power, powered
from holdfast.testing.stage import Performance, Stage

# What is done, and what it finds before it: nothing, a store whose empty directories a backup has
# left out, or something of everything.
SCENES = (
    ("first", ""),
    ("small", "full"),
    ("large", "full"),
    ("large", "thin"),
    ("prune", "full"),
)
# Somebody dies in the middle, and somebody else goes on.
SUCCESSIONS = (
    ("small", "full", "relay"),
    ("first", "", "first"),
    ("small", "full", "small"),
    ("prune", "full", "small"),
    ("prune", "full", "prune"),
    ("small", "full", "prune"),
)
STRIDE = 17  # prime to the number of kinds of cuts, so that each kind is met everywhere
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
class House:
    """A stage, and a disk that forgets."""

    stage: Stage
    power: Power
    promised: dict[str, tuple[str, ...]]

    def length(self, act: str, before: str, drop: tuple[Sync, ...]) -> int:
        """How many operations an act needs."""
        done = self._run(act, before, 1_000_000, drop)
        assert not done.noted("error"), done
        assert not done.noted("fault"), done
        return self.power.operations

    def wrong(self, trial: Trial, drop: tuple[Sync, ...] = ()) -> str:
        """What is wrong after this; empty when nothing is."""
        done = self._run(trial.act, trial.before, trial.at, drop)
        notes = done.notes
        if trial.heir:
            self.power.resume()
            notes += self.stage.perform(trial.heir, str(self.power.root), list(drop)).notes
        self.power.cut(*trial.cut)
        faults = [note["fault"] for note in notes if "fault" in note]
        assert not faults, f"{trial}: not an error of ours:\n{faults[0]}"
        saved = {note["saved"] for note in notes if "saved" in note}
        pruned = "prune" in (trial.act, trial.heir)
        kept = self.promised["pinned" if pruned else trial.before]
        return "; ".join(self._losses(saved.union(kept)))

    def _run(self, act: str, before: str, at: int, drop: tuple[Sync, ...]) -> Performance:
        """Do an act; the power goes just before operation `at`."""
        self.power.load(before)
        self.power.cut_at(at)
        return self.stage.perform(act, str(self.power.root), list(drop))

    def _losses(self, promised: set[str]) -> list[str]:
        """What is wrong now that the power is back."""
        try:
            # Whoever has an acknowledged checkpoint need not make a store to find it.
            with acts.open_at(str(self.power.root), create=not promised) as store:
                return acts.losses(store, promised) or acts.goes_on(store)
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
    last = house.length(act, before, drop) + 1
    kinds = CUTS[:3] if heir else CUTS
    return [Trial(act, before, at, cut, heir) for at in range(last, 0, -1) for cut in kinds]


def some(trials: list[Trial]) -> list[Trial]:
    """The cuts after the last operation, and a few before."""
    ends = len(CUTS)
    return [*trials[:ends], *trials[ends::STRIDE]]


@pytest.mark.parametrize(("act", "before"), SCENES)
def test_a_cut_loses_nothing(house: House, act: str, before: str, progress: Progress) -> None:
    check(house, some(cuts_of(house, act, before)), progress)


@pytest.mark.parametrize(("act", "before", "heir"), SUCCESSIONS)
def test_an_heir_builds_on_solid_ground(
    house: House, act: str, before: str, heir: str, progress: Progress
) -> None:
    check(house, some(cuts_of(house, act, before, heir)), progress)


@pytest.mark.soak
@pytest.mark.parametrize(("act", "before"), SCENES)
def test_no_cut_loses_anything(house: House, act: str, before: str, progress: Progress) -> None:
    check(house, cuts_of(house, act, before), progress)


@pytest.mark.soak
@pytest.mark.parametrize(("act", "before", "heir"), SUCCESSIONS)
def test_every_heir_builds_on_solid_ground(
    house: House, act: str, before: str, heir: str, progress: Progress
) -> None:
    check(house, cuts_of(house, act, before, heir), progress)


@pytest.mark.parametrize("sync", get_args(Sync))
def test_no_sync_is_there_in_vain(house: House, sync: Sync) -> None:
    """Leave out one sync, and something is lost."""
    tried = 0
    for trial in _likely_first(house, (sync,)):
        tried += 1
        if house.wrong(trial, (sync,)):
            return
    pytest.fail(f"nothing was lost in {tried} trials without the sync of {sync!r}: is it needed?")


def _likely_first(house: House, drop: tuple[Sync, ...]) -> Iterator[Trial]:
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
