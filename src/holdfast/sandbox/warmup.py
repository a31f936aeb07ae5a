"""Warming up: a template out of code, in a sandbox that lives only for that."""

from __future__ import annotations

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import BadInput
from holdfast.protocol.sandbox_messages import CreateRequest, ExecuteRequest
from holdfast.sandbox import keeping, owning
from holdfast.sandbox.fleet import Fleet

TAIL = 1000  # characters of what the code said last


async def warm_up(
    fleet: Fleet, name: str, request: CreateRequest, language: str, code: str
) -> Checkpoint:
    """Run code in a new sandbox and keep that as a template. Python runs in the sandbox's session,
    whose imports and variables every sandbox of the template then has. Raises BadInput when the
    code fails, and whatever making a sandbox may raise; nothing is left."""
    keeping.check_name(name)
    sandbox, _ = await fleet.create(request)
    sandbox.unattended = True
    try:
        plain = sandbox.body.build.root.packages  # a root of somebody else's has no session
        session = language == "python" and bool(plain)
        asked = ExecuteRequest(language=language, code=code, session=session, stdin=False)
        execution = await sandbox.execute(asked)
        how = await execution.process.wait()
        if how.code != 0:
            said = b"".join(piece.data for piece in execution.process.replay.after(0))
            words = said.decode("utf-8", "replace").strip()[-TAIL:]
            raise BadInput(f"the warm-up code failed: {words or how.reason or how.signal}")
        sandbox.forget(execution)
        return await fleet.templates.save(sandbox, name)
    finally:
        await fleet.exits.kill(sandbox, owning.silence)
