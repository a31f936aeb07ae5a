"""Bodies: a box with its volume and its line, made and unmade as one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.sandbox import volume
from holdfast.sandbox.contract import Box, Build, Engine, Limits
from holdfast.sandbox.line import AgentLine
from holdfast.sandbox.roots import Root

Fill = Callable[[Path], None]  # lays files out in an empty upper; blocking


@dataclass(slots=True)
class Body:
    """What of a sandbox can be replaced while its identity stays."""

    build: Build
    box: Box
    line: AgentLine

    @property
    def image(self) -> Path:
        """Where the engine writes memory when it freezes."""
        return self.build.folder / "image"

    async def end(self) -> None:
        await self.box.end()
        self.line.close("the sandbox has ended")

    async def clear(self) -> None:
        await self.box.clear()


@dataclass(frozen=True, slots=True)
class Workshop:
    """Makes bodies for one engine, in folders below one place."""

    engine: Engine
    folder: Path

    async def make(
        self,
        root: Root,
        limits: Limits,
        *,
        network: bool = False,
        fill: Fill | None = None,
        image: Path | None = None,
    ) -> Body:
        """A body whose agent is ready, or (with an image) waits to be resumed."""
        name = f"holdfast-{os.getpid()}-{secrets.token_hex(6)}"
        folder = self.folder / name
        folder.mkdir(parents=True, mode=0o700)
        try:
            place = await asyncio.to_thread(_room, folder, limits, fill)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        build = Build(
            name=name, folder=folder, root=root, volume=place, limits=limits, network=network
        )
        exact = image is not None and self.engine.capabilities.exact_checkpoint
        try:
            if exact and image is not None:
                box = await self.engine.restore(build, image)
            else:
                box = await self.engine.create(build)
        except BaseException:
            await asyncio.to_thread(volume.clear, place)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        body = Body(build, box, AgentLine(box.pipes))
        try:
            if not exact:
                await body.line.ready()
        except BaseException:
            await body.end()
            with contextlib.suppress(asyncio.CancelledError):
                await body.clear()
            raise
        return body


def _room(folder: Path, limits: Limits, fill: Fill | None) -> volume.Volume:
    place = volume.make(folder / "volume", limits.disk_bytes)
    try:
        if fill is None:
            volume.furnish(place)
        else:
            fill(place.upper)
    except BaseException:
        volume.clear(place)
        raise
    return place
