"""Every kind of object that the table names, used after a restore as before."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kinds.environment import has
from tests.kinds.kind import groups
from tests.kinds.trial import Workshop


def test_the_environment_has_libraries() -> None:
    libraries = ["xgboost", "lightgbm", "catboost", "jax", "keras", "spacy", "numba", "holdfast"]
    assert [name for name in libraries if not has(name)] == []
    assert not has("nvidia.nccl"), "libraries for graphics cards take gigabytes and are not used"


def test_kinds_have_names_of_their_own() -> None:
    kinds = [kind for group in groups() for kind in group.kinds]
    assert len({kind.own for kind in kinds}) == len(kinds)


@pytest.mark.parametrize("name", ["records", "files", "asyncio"])
def test_a_group_comes_back(name: str, tmp_path: Path) -> None:
    (group,) = (each for each in groups() if each.name == name)
    workshop = Workshop(tmp_path, group)
    found = workshop.session(workshop.alone())
    assert {each.outcome for each in found.values()} == {"good"}
