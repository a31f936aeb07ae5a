"""CHECKPOINTED means durable: the power goes in the moment in which a client hears it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.server.conftest import Starter
from tests.server.sandbox_client import attach, created

from holdfast.sandbox.choice import sweep
from holdfast.testing.lossfs import Loss
from holdfast.testing.power import Power, powered

CUTS: tuple[tuple[Loss, int], ...] = (
    ("nothing", 0),
    ("names", 0),
    ("removals", 0),
    *(("scatter", seed) for seed in range(3)),
)


@pytest.fixture
def power(tmp_path: Path) -> Iterator[Power]:
    with powered(tmp_path / "disk", leases=True) as power:
        yield power


@pytest.mark.parametrize("cuts", [CUTS[:1], pytest.param(CUTS, marks=pytest.mark.soak)])
@pytest.mark.parametrize("leave_running", [False, True])
async def test_what_was_checkpointed_outlives_the_power(
    power: Power, tmp_path: Path, leave_running: bool, cuts: Sequence[tuple[Loss, int]]
) -> None:
    """The store alone lies on the disk that forgets; who comes after has nothing else."""
    shared = {"HOLDFAST_STORE": str(power.root / "store"), "HOLDFAST_KEY": "ab" * 32}

    def servers(name: str) -> Starter:
        home = tmp_path / name
        home.mkdir()
        return Starter(HOLDFAST_HOME=str(home), XDG_CONFIG_HOME=str(home), **shared)

    with servers("first") as start:
        first = start("--engine", "process")
        wire = await created(first, enable_checkpoint=True)
        await wire.run("bash", "head -c 3000000 /dev/urandom > /root/big; sync")
        kept = await wire.run("bash", "sha256sum /root/big")
        await wire.send(action="checkpoint", leave_running=leave_running)
        await wire.until("CHECKPOINTED")
        power.keep("then")
        first.process.kill()
        first.process.wait()
    sweep(tmp_path / "first" / "run")  # what it had mounted, which no power keeps
    seen = set()
    for number, cut in enumerate(cuts):
        power.go_back("then")
        power.cut(*cut)
        if power.digest in seen:
            continue  # most cuts leave the same, when all was durable before
        seen.add(power.digest)
        with servers(f"after-{number}") as start:
            async with attach(start("--engine", "process"), wire.identity) as back:
                assert await back.until("RUNNING") == ["RESTORING", "RUNNING"], cut
                assert await back.run("bash", "sha256sum /root/big") == kept, cut
