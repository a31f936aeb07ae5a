"""Operations that fail late: whatever fails at whichever step, a sandbox is as it was, or is what
the operation makes of it, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.sandbox.steps import Steps, members

from holdfast.model.errors import NotFound
from holdfast.protocol.sandbox_messages import CreateRequest, ExecuteRequest
from holdfast.runtime.trial import mounts_below
from holdfast.sandbox import keeping
from holdfast.sandbox.contract import Engine
from holdfast.sandbox.engines.gvisor import GvisorEngine
from holdfast.sandbox.engines.process import ProcessEngine
from holdfast.sandbox.engines.runc import RuncEngine
from holdfast.sandbox.fleet import Fleet
from holdfast.sandbox.handing import Plea
from holdfast.sandbox.live import LiveSandbox
from holdfast.sandbox.member import SandboxMember
from holdfast.sandbox.owning import silence
from holdfast.sandbox.settings import Settings
from holdfast.store import open_store
from holdfast.testing.programs import result
from holdfast.testing.waiting import until

SHARE_SECONDS = 15.0
WAYS = ("error", "full", "cancel", "timeout_", "kill")
KEPT = CreateRequest(enable_checkpoint=True, enable_sandbox_handoff=True, idle_timeout=3600)
# Goes on saying the next number; what it said is nowhere but in its memory.
COUNTS = """
import time
n = 0
while True:
    n += 1
    print(n, flush=True)
    time.sleep(0.05)
"""
State = dict[str, object]


@dataclass
class Stage:
    """A fleet with one sandbox, whose token is known, and what is compared of both."""

    fleet: Fleet
    ground: Path
    token: str = ""
    identity: str = ""
    clean: State = field(default_factory=dict)  # what is outside while nothing is done

    @property
    def exact(self) -> bool:
        return self.fleet.engine.capabilities.exact_checkpoint

    @property
    def sandbox(self) -> LiveSandbox:
        return self.fleet.live[self.identity]

    async def begin(self) -> None:
        """A sandbox with a file, a session, something that runs, and a history."""
        sandbox, self.token = await self.fleet.create(KEPT)
        self.identity = sandbox.identity
        await self.told("echo old > /root/kept")
        await self.session("x = [1]")
        await self.fleet.freezer.checkpoint(sandbox, reason="first")
        await self.told("echo new > /root/kept")
        await self.session("x.append(2)")
        if self.exact:
            asked = ExecuteRequest(language="python", code=COUNTS, process_id="counts")
            await sandbox.execute(asked)
        await self.fleet.freezer.checkpoint(sandbox, reason="second", during_execution=self.exact)
        await until(lambda: self.outside()["left in boxes"] == [], "all is cleared away")
        await until(lambda: self.outside()["boxes"] == 1, "a room stands ready")
        self.clean = self.outside()

    async def told(self, code: str) -> str:
        return await self._run(ExecuteRequest(language="bash", code=code))

    async def session(self, code: str) -> str:
        return await self._run(ExecuteRequest(language="python", code=code, session=True))

    async def _run(self, asked: ExecuteRequest) -> str:
        sandbox = self.sandbox
        execution = await sandbox.execute(asked)
        done = await result(execution.process)
        sandbox.forget(execution)
        assert done.exit.code == 0, done
        return done.stdout.strip()

    async def counts_on(self) -> None:
        """What runs in it says the next number, and has missed none."""
        if "counts" not in self.sandbox.beside:
            return
        replay = self.sandbox.beside["counts"].process.replay
        end = replay.end
        await until(lambda: replay.end > end, "it goes on")
        said = b"".join(piece.data for piece in replay.after(0)).split()
        numbers = [int(each) for each in said]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))

    async def inside(self) -> State:
        await self.counts_on()
        return {
            "files": await self.told("cat /root/kept; ls /tmp"),
            "session": await self.session("print(x)"),
            "epoch": self.sandbox.body.line.still,
        }

    def outside(self) -> State:
        """What is on the machine and in the store, but for the sandbox's own history."""
        store = self.fleet.store
        owner = store.owner(keeping.subject_of(self.identity))
        subjects = {str(each.subject) for each in store.subjects()}
        boxes = sorted((self.ground / "boxes").glob("*"))
        live = {each.body.build.name for each in self.fleet.live.values()}
        return {
            "live": sorted(self.fleet.live),
            "owned": owner is not None,
            "subjects": sorted(subjects),
            "boxes": len([each for each in boxes if each.name not in live]),
            "left in boxes": sorted(
                name
                for box in boxes
                for name in _names(box)
                if name.startswith(("image-", "files-"))
            ),
            "images": sorted(each.name for each in (self.ground / "images").glob("*")),
            "mounts": len(
                [each for each in mounts_below(self.ground) if not any(n in each for n in live)]
            ),
            "processes": sorted(
                pid for each in boxes if each.name not in live for pid in members(each.name)
            ),
        }

    def head(self) -> str:
        found = self.fleet.store.head(keeping.subject_of(self.identity))
        assert found is not None
        return found.id

    async def settled(self, expected: State) -> None:
        """What is cleared away later has been."""
        differs: State = {}

        def so() -> bool:
            nonlocal differs
            now = self.outside()
            differs = {name: now[name] for name in now if now[name] != expected[name]}
            return not differs

        try:
            await until(so, "only what was there is left", 20)
        except AssertionError as error:
            error.add_note(f"{differs} instead of {expected}")
            raise

    async def back(self) -> None:
        found = await self.fleet.find(self.identity, self.token)
        assert not isinstance(found, LiveSandbox)
        await self.fleet.restore(self.identity, found)

    async def away(self) -> None:
        await self.fleet.exits.put_away(
            self.sandbox, silence, reason="away", during_execution=self.exact
        )


def _names(folder: Path) -> list[str]:
    with suppress(FileNotFoundError):  # it is just being cleared away
        return os.listdir(folder)
    return []


Act = Callable[[Stage], Awaitable[object]]


async def _checkpoint(stage: Stage) -> object:
    freezer = stage.fleet.freezer
    return await freezer.checkpoint(stage.sandbox, reason="again", during_execution=stage.exact)


async def _snapshot(stage: Stage) -> object:
    return await stage.fleet.freezer.snapshot(stage.sandbox, "snap")


async def _template(stage: Stage) -> object:
    return await stage.fleet.templates.save(stage.sandbox, "temp")


async def _fork(stage: Stage) -> object:
    return await stage.fleet.fork(stage.sandbox, 2)


async def _rollback(stage: Stage) -> object:
    """To what it is already, in another body."""
    return await stage.fleet.rollback(stage.sandbox, stage.head())


async def _pause(stage: Stage) -> object:
    """As a member of a bundle that is given up."""
    member = SandboxMember(stage.fleet, stage.sandbox)
    await member.pause()
    await member.resume()
    return None


async def _hand_over(stage: Stage) -> object:
    lease = stage.sandbox.lease
    assert lease is not None
    hashed = keeping.token_hash(stage.token)
    plea = Plea(sandbox_id=stage.identity, token=hashed, lease=lease.token)
    return await stage.fleet.exits.hand_over(plea)


# Each leaves a sandbox where it is, with the same inside; what it makes besides is undone here.
STAYING: dict[str, Act] = {
    "checkpoint": _checkpoint,
    "snapshot": _snapshot,
    "fork": _fork,
    "pause": _pause,
    "template": _template,
    "rollback": _rollback,
}
LEAVING: dict[str, Act] = {"put_away": Stage.away, "hand_over": _hand_over}
ENGINES: dict[str, Callable[[], Engine]] = {
    "process": ProcessEngine,
    "runc": RuncEngine,
    "gvisor": GvisorEngine,
}


@asynccontextmanager
async def staged(engine: str, folder: Path) -> AsyncIterator[Stage]:
    ground = folder / "ground"
    ground.mkdir()
    with open_store(folder / "store") as store:
        fleet = Fleet(store, ENGINES[engine](), ground, Settings(warm=0))
        stage = Stage(fleet, ground)
        try:
            await stage.begin()
            yield stage
        finally:
            told = await fleet.stop()
        assert told == []
    assert mounts_below(folder) == []


async def _undo(stage: Stage, name: str, done: object) -> None:
    """Take back what an operation that came to its end has made."""
    if name == "fork":
        for copy, _ in done or ():  # type: ignore[attr-defined]
            await stage.fleet.exits.kill(copy, silence)
            stage.fleet.store.delete(*stage.fleet.store.list(keeping.subject_of(copy.identity)))
    if name == "snapshot":
        store = stage.fleet.store
        with suppress(NotFound):
            store.delete(*store.list(keeping.snapshot_subject("snap")))
    if name == "template":
        with suppress(NotFound):
            await stage.fleet.templates.delete("temp")


async def _fails_while_it_stays(stage: Stage, name: str, at: int | None, way: str) -> Steps:
    outside, head = stage.clean, stage.head()
    if name == "template":  # which is taken of a sandbox at rest
        await stage.sandbox.kill_all()
        stage.sandbox.beside.clear()
    inside = await stage.inside()
    act = STAYING[name]
    steps = await Steps(at, way, kills=stage.ground / "boxes").run(lambda: act(stage))
    what = f"{name}: {steps.what}"
    if way == "kill" and steps.struck:
        await _undo(stage, name, steps.result)
        await _is_broken(stage, outside, head, what)
        return steps
    raised = steps.error is not None and not isinstance(
        steps.error, asyncio.CancelledError | TimeoutError
    )
    if not steps.struck:
        assert steps.error is None, what
    if raised:
        assert stage.head() == head, what
    await _undo(stage, name, steps.result)
    try:
        await stage.settled(outside)
        assert await stage.inside() == inside
    except AssertionError as error:
        error.add_note(what)
        raise
    return steps


async def _is_broken(stage: Stage, outside: State, head: str, what: str) -> None:
    """Its processes were killed: it is gone from here, and comes back from its last checkpoint."""
    await until(lambda: stage.identity not in stage.fleet.live, f"it is noticed ({what})", 30)
    gone = {**outside, "live": [], "owned": False}
    try:
        await stage.settled(gone)
        await stage.back()
    except AssertionError as error:
        error.add_note(what)
        raise


async def _fails_while_it_leaves(stage: Stage, name: str, at: int | None, way: str) -> Steps:
    """It is still there, as it was; or it is away, and comes back as it was."""
    outside, head, inside = stage.clean, stage.head(), await stage.inside()
    act = LEAVING[name]
    steps = await Steps(at, way, kills=stage.ground / "boxes").run(lambda: act(stage))
    try:
        if way == "kill" and steps.struck:
            await until(lambda: stage.identity not in stage.fleet.live, "it is noticed", 30)
        away = stage.identity not in stage.fleet.live
        if away:
            assert steps.error is None or way not in ("error", "full")
            assert stage.head() != head or way == "kill"
            await stage.settled({**outside, "live": [], "owned": False})
            await stage.back()
        else:
            assert steps.error is not None
            assert stage.head() == head
        await stage.settled(outside)
        assert await stage.inside() == inside
    except AssertionError as error:
        error.add_note(f"{name}: {steps.what}")
        raise
    return steps


async def _fails_while_it_comes_back(stage: Stage, at: int | None, way: str) -> Steps:
    """It is back, or it is not, and can be brought back then."""
    outside, inside = stage.clean, await stage.inside()
    await stage.away()
    head = stage.head()
    gone = {**outside, "live": [], "owned": False}
    await stage.settled(gone)
    steps = await Steps(at, way, kills=stage.ground / "boxes").run(stage.back)
    try:
        if way == "kill" and steps.struck and steps.error is None:
            with suppress(AssertionError):  # it may have ended just when it was back
                await until(lambda: stage.identity not in stage.fleet.live, "it is noticed", 2)
        assert stage.head() == head
        if stage.identity not in stage.fleet.live:
            await stage.settled(gone)
            await stage.back()
        await stage.settled(outside)
        assert await stage.inside() == inside
    except AssertionError as error:
        error.add_note(f"restore: {steps.what}")
        raise
    return steps


async def _fails(stage: Stage, name: str, at: int | None, way: str) -> Steps:
    if name == "restore":
        return await _fails_while_it_comes_back(stage, at, way)
    if name in LEAVING:
        return await _fails_while_it_leaves(stage, name, at, way)
    return await _fails_while_it_stays(stage, name, at, way)


OPERATIONS = (*STAYING, *LEAVING, "restore")


async def test_some_operations_fail_late(tmp_path: Path) -> None:
    """Some steps of each, with the engine that is everywhere; `make soak` takes all of them.
    `HOLDFAST_LATE_SEED` chooses others."""
    seed = int(os.environ.get("HOLDFAST_LATE_SEED", "1"))
    print(f"HOLDFAST_LATE_SEED={seed}")
    choose = random.Random(seed)
    async with staged("process", tmp_path) as stage:
        pairs = []
        for name in OPERATIONS:
            total = len((await _fails(stage, name, None, "")).seen)
            assert total > 2, name
            pairs += [(name, at, way) for at in range(total) for way in WAYS]
        choose.shuffle(pairs)
        began, done = time.monotonic(), 0
        while pairs and time.monotonic() < began + SHARE_SECONDS:
            name, at, way = pairs.pop()
            done += (await _fails(stage, name, at, way)).struck
        print(f"{done} were made to fail, of {done + len(pairs)}")
        assert done


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("name", OPERATIONS)
async def test_every_operation_fails_late(tmp_path: Path, engine: str, name: str) -> None:
    async with staged(engine, tmp_path) as stage:
        total = len((await _fails(stage, name, None, "")).seen)
        for at in range(total):
            for way in WAYS:
                await _fails(stage, name, at, way)
