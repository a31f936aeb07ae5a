"""What a checkpoint says about where it can be brought back."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from holdfast.model.errors import Unsupported
from holdfast.protocol.sandbox_messages import CreateRequest
from holdfast.sandbox.engines.runc import RuncEngine
from holdfast.sandbox.keeping import Kept


class Elsewhere(RuncEngine):
    """The engine of another machine."""

    def __init__(self, **differing: object) -> None:
        super().__init__()
        self._differing = differing

    def environment(self) -> Mapping[str, object]:
        return {**super().environment(), **self._differing}


@pytest.fixture(scope="module")
def here() -> RuncEngine:
    return RuncEngine()


def kept(engine: RuncEngine) -> Kept:
    return Kept(
        checkpoint="x",
        request=CreateRequest(),
        token="",
        epoch=1,
        executions=(),
        environment={**engine.environment(), "root": "host:3.11"},
        memory=(),
        layer=0,
    )


def test_the_same_machine_is_fine(here: RuncEngine) -> None:
    kept(here).check(here, "host:3.11")


def test_more_features_of_the_processor_are_fine_and_fewer_are_not(here: RuncEngine) -> None:
    flags = here.environment()["cpu"]
    assert isinstance(flags, list)
    kept(here).check(Elsewhere(cpu=[*flags, "zz_new"]), "host:3.11")
    with pytest.raises(Unsupported, match="this processor lacks zz_new") as refused:
        kept(Elsewhere(cpu=[*flags, "zz_new"])).check(here, "host:3.11")
    assert "where it was made" in (refused.value.hint or "")


@pytest.mark.parametrize("name", ["criu", "runc", "kernel", "python", "machine", "engine"])
def test_another_version_is_refused_in_words(here: RuncEngine, name: str) -> None:
    with pytest.raises(Unsupported, match=f"{name} was 'other' and is"):
        kept(Elsewhere(**{name: "other"})).check(here, "host:3.11")


def test_another_root_is_refused_in_words(here: RuncEngine) -> None:
    with pytest.raises(Unsupported, match=r"root was 'host:3\.11' and is 'host:3\.12' here"):
        kept(here).check(here, "host:3.12")
