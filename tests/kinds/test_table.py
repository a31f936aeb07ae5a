"""Every kind of object that the table names, used after a restore as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kinds.environment import has
from tests.kinds.kind import groups
from tests.kinds.trial import Found, Workshop

# Quick ones. None of them has a kind that is called right and is not.
QUICK = ("asyncio", "columns", "files", "images", "pandas", "python", "records")


def tried(name: str, folder: Path) -> dict[str, Found]:
    """What becomes of each kind of a group, by its title."""
    (group,) = (each for each in groups() if each.name == name)
    workshop = Workshop(folder, group)
    found = workshop.session(workshop.alone())
    return {kind.title: found[kind.own] for kind in group.kinds}


def test_the_environment_has_libraries() -> None:
    libraries = ["xgboost", "lightgbm", "catboost", "jax", "keras", "spacy", "numba", "holdfast"]
    assert [name for name in libraries if not has(name)] == []
    assert not has("nvidia.nccl"), "libraries for graphics cards take gigabytes and are not used"


def test_kinds_have_names_of_their_own() -> None:
    kinds = [kind for group in groups() for kind in group.kinds]
    assert len({kind.own for kind in kinds}) == len(kinds)


@pytest.mark.parametrize("name", QUICK)
def test_what_is_called_right_is(name: str, tmp_path: Path) -> None:
    found = tried(name, tmp_path)
    bad = {title: each for title, each in found.items() if each.outcome in ("wrong", "ends")}
    assert not bad
    silent = [title for title, each in found.items() if each.outcome != "good" and not each.why]
    assert not silent, "a placeholder says why"


@pytest.mark.soak
@pytest.mark.parametrize("name", [each.name for each in groups()])
def test_no_kind_ends_its_session(name: str, tmp_path: Path) -> None:
    found = tried(name, tmp_path)
    counts = [each.outcome for each in found.values()]
    print(name, {outcome: counts.count(outcome) for outcome in sorted({*counts})})
    assert "ends" not in counts
