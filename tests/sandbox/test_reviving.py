"""Sandboxes out of checkpoints, with what ran in them when they were frozen."""

from __future__ import annotations

from pathlib import Path

from holdfast.protocol.sandbox_messages import CreateRequest, ExecuteRequest
from holdfast.sandbox.engines.gvisor import GvisorEngine
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.live import LiveSandbox
from holdfast.sandbox.settings import Settings
from holdfast.sandbox.start import Start
from holdfast.store import open_store
from holdfast.testing.programs import result
from holdfast.testing.waiting import until

LEFT = "grep -lx cat /proc/[0-9]*/comm 2>/dev/null | wc -l"


async def _left(sandbox: LiveSandbox) -> str:
    """How many of them there are, as soon as nothing is known to run."""
    await until(lambda: not sandbox.body.line.processes, "all has ended")
    asked = await sandbox.execute(ExecuteRequest(language="bash", code=LEFT))
    told = await result(asked.process)
    sandbox.forget(asked)
    return told.stdout.strip()


async def test_what_ran_for_nobody_ends_in_all_that_comes_back(tmp_path: Path) -> None:
    (tmp_path / "ground").mkdir()
    with open_store(tmp_path / "store") as store:
        fleet = Fleet(store, GvisorEngine(), tmp_path / "ground", Settings(warm=0))
        try:
            sandbox, _ = await fleet.create(CreateRequest(enable_checkpoint=True))
            env = {"PATH": sandbox.body.build.root.path}
            waits = await sandbox.body.line.start(Start(argv=["cat"], env=env))
            await fleet.freezer.checkpoint(sandbox, reason="it is no execution")
            await fleet.templates.save(sandbox, "waits")
            [(copy, _)] = await fleet.fork(sandbox, 1)
            assert await _left(copy) == "0"
            await waits.write(b"here it goes on")
            waits.end_input()
            assert (await result(waits)).stdout == "here it goes on"
            await fleet.rollback(sandbox)
            assert await _left(sandbox) == "0"
            made, _ = await fleet.create(CreateRequest(template="waits"))
            assert await _left(made) == "0"
        finally:
            assert await fleet.stop() == []
