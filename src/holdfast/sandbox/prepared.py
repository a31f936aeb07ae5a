"""Prepared: a box that was made before anybody knew what would be brought back in it.

Most of what a restore waits for is the engine's own beginning, which is the same for every
checkpoint. What differs comes last: its files, written through the root that is mounted already,
and its memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from holdfast.model.errors import from_os_error
from holdfast.sandbox import merged
from holdfast.sandbox.body import Body, Workshop
from holdfast.sandbox.contract import Build, Engine, Limits, Waiting
from holdfast.sandbox.line import ANSWER_SECONDS, AgentLine
from holdfast.sandbox.pool import over
from holdfast.sandbox.roots import Root
from holdfast.sandbox.upper import Fill
from holdfast.sandbox.whole import in_thread, whole

# More than that is laid out anew. Through the mount each file takes 30 us longer, so that of many
# small ones, at 2 KB each when packed, the layout would take longer than it saves.
MOST_LAYER = 8 << 20
# Where every container has something of its own mounted, besides what its root names.
_HELD = ("/proc", "/run", "/dev", "/sys")


@dataclass(slots=True)
class Prepared:
    """A box that waits."""

    build: Build
    box: Waiting
    engine: Engine
    patience: float = ANSWER_SECONDS

    @property
    def alive(self) -> bool:
        return self.box.alive

    def fits(self, root: Root, limits: Limits, *, network: bool, layer: int) -> bool:
        """Whether what was frozen with these, and so many bytes of files, should be brought back in
        it: a disk keeps its size, and everything else that limits it can be changed."""
        mine = self.build
        return (
            root is mine.root
            and limits.disk_bytes == mine.limits.disk_bytes
            and network == mine.network
            and layer <= MOST_LAYER
        )

    async def restore(self, limits: Limits, fill: Fill, image: Path) -> Body:
        """A body whose agent waits to be resumed. Raises HoldfastError; nothing of it runs then,
        and it is to be cleared."""
        held = [*_HELD, *(mount.target for mount in self.build.root.mounts)]
        lay_out = partial(merged.unpack, held=held)
        try:
            if limits != self.build.limits:
                self.box.limit(limits)
            await in_thread(fill, self.build.volume.merged, lay_out)
            await self.box.restore(image)
        except BaseException as error:
            await self.end()
            if isinstance(error, OSError):
                raise from_os_error(error, "restoring a sandbox") from error
            raise
        line = AgentLine(self.box.pipes, self.box.places, self.box.ceilings, self.patience)
        return Body(replace(self.build, limits=limits), self.box, line, self.engine)

    async def end(self) -> None:
        """Once: nobody else has its pipes."""
        await self.box.end()
        for fd in self.box.pipes:
            os.close(fd)

    async def clear(self) -> None:
        await self.box.clear()


async def prepare(workshop: Workshop, root: Root, limits: Limits) -> Prepared:
    """Raises HoldfastError or is cancelled, and leaves nothing."""
    return await whole(_prepare(workshop, root, limits), undo=over)


async def _prepare(workshop: Workshop, root: Root, limits: Limits) -> Prepared:
    room = await workshop.room(limits)
    build = Build(name=room.name, folder=room.folder, root=root, volume=room.volume, limits=limits)
    try:
        box = await workshop.engine.prepare(build)
        return Prepared(build, box, workshop.engine, workshop.patience)
    except BaseException:
        await in_thread(room.clear)
        raise
    finally:
        workshop.prepare()
