"""What an engine does not declare is refused by every verb that needs it; nothing ends by that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model.errors import Unsupported
from holdfast.protocol.sandbox_messages import CreateRequest, ExecuteRequest
from holdfast.sandbox.engines.process import ProcessEngine
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.settings import Settings
from holdfast.store import open_store


class Less(ProcessEngine):
    """An engine that can run sandboxes, and nothing else."""

    capabilities = replace(
        ProcessEngine.capabilities,
        during_execution=False,
        fork=False,
        snapshot=False,
        network=False,
        pty=False,
    )


async def test_verbs_that_need_what_is_not_declared(tmp_path: Path) -> None:
    (tmp_path / "ground").mkdir()
    with open_store(tmp_path / "store") as store:
        fleet = Fleet(store, Less(), tmp_path / "ground", Settings(warm=0))
        try:
            with pytest.raises(Unsupported, match="network"):
                await fleet.create(CreateRequest(network=True))
            sandbox, _ = await fleet.create(CreateRequest(enable_checkpoint=True))
            code = "read line; echo $line"
            running = await sandbox.execute(ExecuteRequest(language="bash", code=code))
            terminal = ExecuteRequest(language="bash", code="tty", pty=True, process_id="beside")
            with pytest.raises(Unsupported, match="pty"):
                await sandbox.execute(terminal)
            with pytest.raises(Unsupported, match="during execution"):
                await fleet.freezer.checkpoint(sandbox, reason="r", during_execution=True)
            with pytest.raises(Unsupported, match="fork"):
                await fleet.fork(sandbox, 1)
            with pytest.raises(Unsupported, match="snapshot"):
                await fleet.freezer.snapshot(sandbox, "name")
            with pytest.raises(Unsupported, match="snapshot"):
                await fleet.templates.save(sandbox, "name")
            await running.process.write(b"on\n")
            assert (await running.process.wait()).code == 0
            assert [*sandbox.executions] == [running]
            assert list(fleet.live) == [sandbox.identity]
            await fleet.freezer.checkpoint(sandbox, reason="at rest")
        finally:
            assert await fleet.stop() == []
