"""Drills on a schedule: the server proves its checkpoints by bringing them back, and says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from holdfast.drill import Drill, drill, noted
from holdfast.drill.choosing import choose
from holdfast.model import moment
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import Conflict
from holdfast.server import background
from holdfast.server.doors import Access, route
from holdfast.server.operations import Text, read_body
from holdfast.view import verified

if TYPE_CHECKING:
    from holdfast.store import Store

log = logging.getLogger("holdfast.server")
LOOK_SECONDS = 60.0
_ALL = "every subject of the store"


class Now(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to drill at once: so many heads, of subjects that match one of the patterns."""

    most: Annotated[int, Meta(ge=1, le=1000)] = 10
    subjects: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=100)] = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How often, how many, and which."""

    hours: float = 0.0  # 0: only when somebody asks
    most: int = 10
    patterns: tuple[str, ...] = ("*",)


class Drills:
    """The drills of one server, one after the other."""

    def __init__(self, store: Store, schedule: Schedule | None = None) -> None:
        self._store = store
        self._schedule = schedule or Schedule()
        self._busy = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.counters = {"done": 0, "failed": 0}

    def routes(self) -> list[Route]:
        return [
            route("/v1/drills", self.show, access=Access.OWNER, subject=_ALL),
            route("/v1/drills", self.start, access=Access.OWNER, subject=_ALL, methods=["POST"]),
        ]

    def begin(self) -> None:
        if self._schedule.hours > 0:
            every = self._schedule.hours * 3600
            self._task = asyncio.create_task(
                background.repeat("drilling", lambda: min(LOOK_SECONDS, every / 4), self._drill_due)
            )

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def show(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(self._told))

    async def start(self, request: Request) -> Response:
        asked = await read_body(request, Now)
        assert isinstance(asked, Now)
        if self._busy.locked():
            raise Conflict("a drill is under way", hint="GET /v1/drills shows what comes of it")
        await self.run(asked.subjects, asked.most)
        return JSONResponse(await asyncio.to_thread(self._told))

    async def run(self, patterns: Sequence[str], most: int) -> list[Drill]:
        """Drill what is due. What goes wrong is in the results, and in the log."""
        async with self._busy:
            done = []
            for head in await asyncio.to_thread(self._due, patterns, most):
                done.append(await drill(self._store, head))
                self.counters["done"] += 1
                await asyncio.to_thread(noted.note, self._store.url, done[-1:])
                if not done[-1].ok:
                    self.counters["failed"] += 1
                    why = "; ".join(done[-1].problems[:3])
                    log.warning("drill of %s of %s failed: %s", head.short, head.subject, why)
            return done

    @property
    def failing(self) -> int:
        """Subjects whose last drill failed."""
        last = noted.last(self._store.url)
        return sum(not each["ok"] for each in last["drills"]) if last else 0

    def proven(self) -> dict[str, object]:
        """When the store was last verified and drilled, here or by somebody else."""
        verification, last = verified.last(self._store.url), noted.last(self._store.url)
        return {
            "verified": verification["time"] if verification else None,
            "drilled": last["time"] if last else None,
            "drilling": self._busy.locked(),
        }

    def _told(self) -> dict[str, object]:
        last = noted.last(self._store.url)
        return {
            "every_hours": self._schedule.hours,
            "most": self._schedule.most,
            "subjects": list(self._schedule.patterns),
            "running": self._busy.locked(),
            "time": last["time"] if last else None,
            "drills": last["drills"][::-1] if last else [],
        }

    def _due(self, patterns: Sequence[str], most: int) -> list[Checkpoint]:
        last = noted.last(self._store.url)
        known = last["drills"] if last else []
        drilled = {each["subject"]: (each["checkpoint"], each["time"]) for each in known}
        heads = [each.head for each in self._store.subjects() if each.head is not None]
        return choose(heads, drilled, patterns=patterns, most=most)

    async def _drill_due(self) -> None:
        every = self._schedule.hours * 3600
        last = await asyncio.to_thread(noted.last, self._store.url)
        ago = (moment.now() - moment.from_text(last["time"])).total_seconds() if last else every
        if ago >= every and not self._busy.locked():
            await self.run(self._schedule.patterns, self._schedule.most)
