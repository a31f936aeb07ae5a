"""Sandboxes that agents work in, on a server: it keeps them, and this process only knows the way.

They go on without us, and are frozen when they are idle for too long, so an agent that comes back
finds what it left.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holdfast.client.process import Exit, Process
from holdfast.client.sandbox import Sandbox
from holdfast.client.streams import Stream
from holdfast.client.web import Web
from holdfast.model.errors import Conflict, HoldfastError, NotFound
from holdfast.server.mcp import answers
from holdfast.server.mcp import arguments as given
from holdfast.server.mcp.contract import Progress
from holdfast.server.mcp.following import Follower
from holdfast.server.mcp.passes import Pass, Passes
from holdfast.server.mcp.workspace import content_of, piece

IN_USE_SECONDS = 10.0  # a server notices only after a moment that whoever was there is gone
TIMEOUT = 600.0
IDLE_SECONDS = 300.0  # without a call, after which a sandbox is frozen
AWAKE_SECONDS = 60.0  # how often the server hears that somebody waits for what runs
Moments = tuple[answers.Moment, ...]


@dataclass(slots=True, eq=False)
class _Place:
    work: asyncio.Lock = field(default_factory=asyncio.Lock)  # one call after the other
    sandbox: Sandbox | None = None


class SandboxLevel:
    """Sandboxes of one server, by name."""

    def __init__(
        self,
        url: str,
        token: str | None,
        passes: Passes,
        *,
        show_secrets: bool = False,
        idle_seconds: float = IDLE_SECONDS,
        awake_seconds: float = AWAKE_SECONDS,
    ) -> None:
        self._idle_seconds = idle_seconds
        self._awake_seconds = awake_seconds
        self._url = url
        self._token = token
        self._passes = passes
        self._show_secrets = show_secrets
        self._web = Web(url, token)
        self._places: dict[str, _Place] = {}

    # -- running

    async def execute(
        self, name: str, asked: given.Execute, progress: Progress
    ) -> answers.Executed:
        async with self._using(name) as sandbox:
            began = time.perf_counter()
            process = await sandbox.exec(
                asked.language, asked.code, session=asked.language == "python"
            )
            stdout, stderr, ended, late = await _follow(
                process, asked.timeout, progress, self._awake_seconds
            )
        cut = answers.CUT
        return answers.Executed(
            subject=f"sandbox/{name}",
            ok=ended.code == 0,
            stdout=stdout[:cut],
            stderr=stderr[:cut],
            error=_error(ended, late, stderr),
            exit_code=ended.code,
            seconds=round(time.perf_counter() - began, 4),
            truncated=max(len(stdout), len(stderr)) > cut,
        )

    # -- freezing and bringing back

    async def checkpoint(self, name: str, asked: given.Checkpoint) -> answers.Kept:
        async with self._using(name) as sandbox:
            made = await sandbox.checkpoint(asked.reason, leave_running=True)
            return await self._kept(name, made.id)

    async def restore(self, name: str, asked: given.Restore) -> answers.Moved:
        async with self._using(name) as sandbox:
            target = await self._find(sandbox.sandbox_id, asked.checkpoint)
            # It is put away first: what was there stays, as a checkpoint, and the head may move.
            await sandbox.checkpoint("before a restore")
            await self._ask("post", f"/v1/checkpoints/{target['id']}/restore")
        async with self._using(name):
            at = answers.Moment.read(target, f"sandbox/{name}")
        return answers.Moved(subject=f"sandbox/{name}", checkpoint=at)

    async def rollback(self, name: str, asked: given.Rollback) -> answers.Moved:
        async with self._using(name) as sandbox:
            to = None
            if asked.to is not None:
                to = (await self._find(sandbox.sandbox_id, asked.to))["id"]
            made = await sandbox.rollback(to)
            kept = await self._kept(name, made)
        return answers.Moved(subject=kept.subject, checkpoint=kept.checkpoint)

    async def fork(self, name: str, asked: given.Fork) -> answers.Kept:
        new = asked.name.removeprefix("sandbox/")
        if await asyncio.to_thread(self._passes.find, new) is not None:
            raise Conflict(f"there is a sandbox/{new} already", hint="choose another name")
        if asked.checkpoint is not None:
            origin = await self._find(await self._identity(name), asked.checkpoint)
            told = await self._ask("post", f"/v1/checkpoints/{origin['id']}/sandbox")
            (made,) = told["sandboxes"]
            copy = await self._attach(Pass(sandbox_id=made["id"], sandbox_token=made["token"]))
        else:
            async with self._using(name) as sandbox:
                (copy,) = await sandbox.fork()
        await self._remember(new, copy)
        self._places[new] = _Place(sandbox=copy)
        lineage = await self._ask("get", f"/v1/subjects/sandbox/{copy.sandbox_id}/lineage")
        return await self._kept(new, lineage["head"])

    # -- looking

    async def list(self, name: str | None, asked: given.List) -> answers.Listed:
        names = await asyncio.to_thread(self._passes.names) if name is None else [name]
        subjects: tuple[answers.Known, ...] = ()
        moments: Moments = ()
        for each in names[: asked.limit]:
            found = await self._checkpoints(each, asked.limit)
            place = self._places.get(each)
            running = place is not None and place.sandbox is not None
            if name is not None and found is None:
                raise NotFound(f"there is no sandbox/{each}", hint="`execute` begins one")
            moments += found or ()
            known = answers.Known(
                subject=f"sandbox/{each}",
                checkpoints=len(found or ()),
                head=found[0].short if found else None,
                running=running,
            )
            subjects += (known,)
        return answers.Listed(
            subject="" if name is None else f"sandbox/{name}",
            subjects=subjects,
            checkpoints=moments[: asked.limit],
        )

    async def diff(self, name: str, asked: given.Diff) -> answers.Compared:
        identity = await self._identity(name)
        before = (await self._find(identity, asked.before))["id"]
        after = (await self._find(identity, asked.after or "~0"))["id"]
        told = await asyncio.to_thread(
            partial(self._web.get, "/v1/diff", before=before, after=after)
        )
        return answers.Compared.read(told, f"sandbox/{name}")

    async def show(self, name: str, reference: str) -> dict[str, object]:
        found = await self._find(await self._identity(name), reference)
        told = await self._ask("get", f"/v1/checkpoints/{found['id']}")
        inside = await self._ask("get", f"/v1/checkpoints/{found['id']}/content")
        return {**told, "contents": inside}

    # -- files

    async def read_file(self, name: str, asked: given.ReadFile) -> answers.FileRead:
        async with self._using(name) as sandbox:
            read = await sandbox.files.read_piece(asked.path, asked.offset, asked.limit)
        subject = f"sandbox/{name}"
        return piece(subject, asked, read.data, read.size, show_secrets=self._show_secrets)

    async def write_file(self, name: str, asked: given.WriteFile) -> answers.FileWritten:
        data = content_of(asked)
        async with self._using(name) as sandbox:
            await sandbox.files.write(asked.path, data)
        return answers.FileWritten(subject=f"sandbox/{name}", path=asked.path, size=len(data))

    # -- life

    async def close(self) -> None:
        """Leave; they go on without us."""
        for place in self._places.values():
            if place.sandbox is not None:
                await place.sandbox.detach()

    @contextlib.asynccontextmanager
    async def _using(self, name: str) -> AsyncIterator[Sandbox]:
        place = self._places.setdefault(name, _Place())
        async with place.work:
            if place.sandbox is None or place.sandbox.state != "running":
                place.sandbox = await self._open(name)
            yield place.sandbox

    async def _open(self, name: str) -> Sandbox:
        """Attach to the one of this name, or make it. Raises NotFound for one that is gone."""
        known = await asyncio.to_thread(self._passes.find, name)
        if known is not None:
            try:
                return await self._attach(known)
            except NotFound:
                await asyncio.to_thread(self._passes.forget, name)
                raise NotFound(
                    f"sandbox/{name} is gone: it was ended on its server",
                    hint="call again to begin a new one under this name",
                ) from None
        sandbox = await Sandbox.create(
            self._url,
            token=self._token,
            idle_timeout=self._idle_seconds,
            enable_checkpoint=True,
            enable_idle_timeout_auto_checkpoint=True,
        )
        await self._remember(name, sandbox)
        return sandbox

    async def _attach(self, known: Pass) -> Sandbox:
        until = time.monotonic() + IN_USE_SECONDS
        while True:
            try:
                return await Sandbox.attach(
                    self._url, known.sandbox_id, known.sandbox_token, token=self._token
                )
            except Conflict:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.2)

    async def _remember(self, name: str, sandbox: Sandbox) -> None:
        given = Pass(sandbox_id=sandbox.sandbox_id, sandbox_token=sandbox.sandbox_token)
        try:
            await asyncio.to_thread(self._passes.keep, name, given)
        except BaseException:
            await sandbox.kill()  # nobody could come back to it
            raise

    # -- what the server knows

    async def _ask(self, method: str, path: str) -> dict[str, Any]:
        return await asyncio.to_thread(getattr(self._web, method), path)

    async def _identity(self, name: str) -> str:
        known = await asyncio.to_thread(self._passes.find, name)
        if known is None:
            raise NotFound(f"there is no sandbox/{name}", hint="`execute` begins one")
        return known.sandbox_id

    async def _checkpoints(self, name: str, limit: int) -> Moments | None:
        """Newest first; None for a sandbox that nobody knows."""
        known = await asyncio.to_thread(self._passes.find, name)
        if known is None:
            return None
        subject = f"sandbox/{known.sandbox_id}"
        ask = partial(self._web.get, "/v1/checkpoints", subject=subject, limit=limit)
        try:
            told = await asyncio.to_thread(ask)
        except NotFound:
            return ()  # it was never frozen
        return tuple(answers.Moment.read(each, f"sandbox/{name}") for each in told["checkpoints"])

    async def _find(self, identity: str, reference: str) -> dict[str, Any]:
        """A checkpoint of this sandbox, and of no other subject. Raises NotFound."""
        lineage = await self._ask("get", f"/v1/subjects/sandbox/{identity}/lineage")
        known = {each["id"]: each for each in lineage["checkpoints"]}
        if reference.startswith("~") and (reference[1:] or "1").isdecimal():
            at = known.get(lineage["head"])
            for _ in range(int((reference[1:] or "1")[:6])):
                at = known.get(next(iter(at["parents"]), "")) if at else None
            found = [at] if at else []
        else:
            found = [
                each
                for each in known.values()
                if reference in (each["id"], *each["tags"])
                or (len(reference) >= 4 and each["digest"].startswith(reference))
            ]
        if len(found) != 1:
            many = "several checkpoints are" if found else "no checkpoint is"
            raise NotFound(f"{many} called {reference!r} here", hint="`list` shows them")
        return dict(found[0])

    async def _kept(self, name: str, identity: str) -> answers.Kept:
        told = await self._ask("get", f"/v1/checkpoints/{identity}")
        made = answers.Moment.read(told["checkpoint"], f"sandbox/{name}")
        return answers.Kept(subject=f"sandbox/{name}", checkpoint=made)


async def _follow(
    process: Process, timeout: float | None, progress: Progress, awake_seconds: float
) -> tuple[str, str, Exit, bool]:
    """What it wrote, how it ended, and whether that was because its time was over."""
    follower = Follower(progress)

    async def read(stream: Stream) -> str:
        pieces, kept = [], 0
        with contextlib.suppress(HoldfastError):  # why it ended early is in how the process ended
            async for text in stream:
                if kept <= answers.CUT:
                    pieces.append(str(text))
                    kept += len(text)
                await follower.heard(str(text))
        return "".join(pieces)

    async def stay() -> None:
        while True:
            await asyncio.sleep(awake_seconds)
            process.touch()

    late = False
    waiting = asyncio.create_task(stay())
    reading = asyncio.gather(read(process.stdout), read(process.stderr))
    try:
        try:
            await asyncio.wait_for(asyncio.shield(reading), timeout or TIMEOUT)
        except TimeoutError:
            late = True
            await process.kill()
        stdout, stderr = await reading
        return stdout, stderr, await process.wait(), late
    except asyncio.CancelledError:
        reading.cancel()
        await process.kill()
        raise
    finally:
        waiting.cancel()


def _error(ended: Exit, late: bool, stderr: str) -> answers.Error | None:
    last = stderr.strip().rpartition("\n")[2][:1000]
    if late:
        return answers.Error(type="Timeout", message="its time was over")
    if ended.signal is not None:
        return answers.Error(type="Signal", message=f"ended by signal {ended.signal}")
    if ended.code is None:
        return answers.Error(type="Lost", message=ended.reason or "nobody knows how it ended")
    return None if ended.code == 0 else answers.Error(type=f"Exit {ended.code}", message=last)
