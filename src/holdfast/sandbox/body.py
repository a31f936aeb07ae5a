"""Bodies: a box with its volume and its line, made and unmade as one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from holdfast.model.errors import HoldfastError
from holdfast.model.files import make_folder
from holdfast.protocol.sandbox_messages import ExecuteRequest
from holdfast.sandbox import volume
from holdfast.sandbox.chores import REST_SECONDS
from holdfast.sandbox.contract import Box, Build, Engine, Limits
from holdfast.sandbox.languages import plan
from holdfast.sandbox.line import ANSWER_SECONDS, AgentLine
from holdfast.sandbox.roots import Root
from holdfast.sandbox.start import Start
from holdfast.sandbox.upper import Fill
from holdfast.sandbox.volume import Volume
from holdfast.sandbox.whole import in_thread, in_thread_or_undone, whole

log = logging.getLogger("holdfast.sandbox")
_WARM_SECONDS = 30.0
_OFTEN = (["/usr/bin/python3", "-c", "pass"], ["bash", "-c", ":"])


@dataclass(slots=True)
class Body:
    """What of a sandbox can be replaced while its identity stays."""

    build: Build
    box: Box
    line: AgentLine
    engine: Engine

    @property
    def alive(self) -> bool:
        return not self.line.gone.done()

    @property
    def exact(self) -> bool:
        """Whether memory and processes are frozen, and not files alone."""
        return self.engine.capabilities.exact_checkpoint

    async def warm(self) -> None:
        """Let programs that are often asked for begin and end, so that the next find libraries and
        folders in memory: gVisor keeps its own of both."""
        root = self.build.root
        env = {"PATH": root.path, "LC_CTYPE": "C.UTF-8"}
        # Python last, and exactly as it will be asked for: then an interpreter waits for that.
        code = ExecuteRequest(language="python", code="pass")
        asked = plan(code, root, self.build.limits, "").start
        for start in (*(Start(argv=argv, env=env) for argv in _OFTEN), asked):
            # What is not there, or does not begin, says so to whoever asks for it.
            with contextlib.suppress(HoldfastError, TimeoutError):
                program = await self.line.start(start)
                async with asyncio.timeout(_WARM_SECONDS):
                    await program.wait()

    async def end(self) -> None:
        """Nothing of it runs any more. Raises HoldfastError or OSError where that cannot be; its
        line is closed all the same, by which an agent that still hears ends everything."""
        try:
            await self.box.end()
        finally:
            self.line.close("the sandbox has ended")

    async def clear(self) -> None:
        await self.box.clear()

    async def give_up(self) -> None:
        """End it and clear it away: of one that nobody knows yet, everything."""
        try:
            await self.end()
        finally:
            await self.clear()


@dataclass(frozen=True, slots=True)
class Room:
    """A folder for one box, with an empty volume in it."""

    name: str
    folder: Path
    volume: Volume

    @classmethod
    def make(cls, place: Path, disk_bytes: int) -> Room:
        """Blocking. Raises HoldfastError and leaves nothing."""
        name = f"holdfast-{os.getpid()}-{secrets.token_hex(6)}"
        folder = place / name
        make_folder(folder)
        try:
            return cls(name, folder, volume.make(folder / "volume", disk_bytes))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def furnish(self, fill: Fill | None) -> None:
        """Blocking; what a new sandbox has, or what another had."""
        if fill is None:
            volume.furnish(self.volume)
        else:
            fill(self.volume.upper)

    def clear(self) -> None:
        volume.clear(self.volume)
        shutil.rmtree(self.folder, ignore_errors=True)


class Workshop:
    """Makes bodies for one engine, in folders below one place. With a `spare` size, a room with
    so much disk is always ready: making a file system takes longer than most of the rest."""

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        spare: int | None = None,
        patience: float = ANSWER_SECONDS,
    ) -> None:
        self.engine = engine
        self.patience = patience  # seconds for an agent to answer
        self._folder = folder
        self._size = spare
        self._spare: Room | None = None
        self._preparing: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Have a room ready, soon."""
        if self._size is not None and self._spare is None and self._preparing is None:
            self._preparing = asyncio.create_task(self._prepare(self._size))

    async def _prepare(self, size: int) -> None:
        try:
            await asyncio.sleep(REST_SECONDS)
            if self._size is not None:
                self._spare = await in_thread_or_undone(Room.clear, Room.make, self._folder, size)
        except (HoldfastError, OSError) as error:
            log.warning("no room could be made ready: %s", error)  # whoever needs one is told
        finally:
            self._preparing = None

    async def close(self) -> None:
        self._size = None
        if self._preparing is not None:
            await asyncio.gather(self._preparing, return_exceptions=True)
        spare, self._spare = self._spare, None
        if spare is not None:
            await in_thread(spare.clear)

    async def room(self, limits: Limits) -> Room:
        """An empty one. Raises HoldfastError."""
        if limits.disk_bytes == self._size and self._spare is not None:
            ready, self._spare = self._spare, None
            return ready
        return await in_thread_or_undone(Room.clear, Room.make, self._folder, limits.disk_bytes)

    async def make(
        self,
        root: Root,
        limits: Limits,
        *,
        network: bool = False,
        fill: Fill | None = None,
        image: Path | None = None,
    ) -> Body:
        """A body whose agent is ready, or (with an image) waits to be resumed. Raises HoldfastError
        or is cancelled, and leaves nothing."""
        return await whole(self._make(root, limits, network, fill, image), undo=Body.give_up)

    async def _make(
        self, root: Root, limits: Limits, network: bool, fill: Fill | None, image: Path | None
    ) -> Body:
        room = await self.room(limits)
        build = Build(
            name=room.name,
            folder=room.folder,
            root=root,
            volume=room.volume,
            limits=limits,
            network=network,
        )
        exact = self.engine.capabilities.exact_checkpoint
        try:
            await in_thread(room.furnish, fill)
            if image is not None and exact:
                box = await self.engine.restore(build, image)
            else:
                box = await self.engine.create(build)
        except BaseException:
            await in_thread(room.clear)
            raise
        finally:
            self.prepare()
        line = AgentLine(box.pipes, box.places, box.ceilings, self.patience)
        body = Body(build, box, line, self.engine)
        try:
            if image is None or not exact:
                await body.line.ready()
        except BaseException:
            await body.give_up()
            raise
        return body
