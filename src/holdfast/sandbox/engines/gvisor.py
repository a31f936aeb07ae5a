"""gVisor: a kernel of its own for every sandbox, which freezes memory and processes exactly.

Nothing is ever started with `runsc exec`: what was, dies at a restore. Every process is a child of
the agent.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from holdfast.model.errors import CaptureFailed, HoldfastError, Unsupported
from holdfast.runtime import engines as found
from holdfast.runtime.command import run
from holdfast.runtime.trial import clear
from holdfast.sandbox import launch, limits, volume
from holdfast.sandbox.contract import Build, Capabilities
from holdfast.sandbox.engines import bundle, control
from holdfast.sandbox.limits import Groups

PLATFORM = "systrap"
STEP_SECONDS = 60.0
# A process inside is more than one outside: stubs of the platform, threads of the kernel.
HOST_PROCESSES = 4096


class GvisorEngine:
    """Sandboxes under `runsc`."""

    name = "gvisor"
    capabilities = Capabilities(
        exact_checkpoint=True,
        during_execution=True,
        fork=True,
        snapshot=True,
        network=False,
        pty=True,
        boundary=True,
    )

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        engine = found.find("runsc", environ)
        if engine is None:
            raise Unsupported("there is no runsc on this machine", hint="make setup, as root")
        if os.geteuid() != 0:
            raise Unsupported("the engine gvisor needs root", hint="the engine process does not")
        self.program = engine.program
        self.environ = found.environment(environ)

    def environment(self) -> Mapping[str, object]:
        return self._environment

    @cached_property
    def speaks(self) -> bool:
        """Whether the messages of its control socket are known."""
        told = run((str(self.program), "--version"), seconds=STEP_SECONDS, environ=self.environ)
        version = (told.stdout.splitlines() or [""])[0]
        return version.endswith(control.KNOWN)

    @cached_property
    def _environment(self) -> dict[str, object]:
        with open(self.program, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        _ = self.speaks  # asked once, and not when somebody waits
        return {
            "engine": self.name,
            "runsc": digest,
            "platform": PLATFORM,
            "machine": platform.machine(),
            "python": sys.version,  # the agent's memory is in the image
            "cpu": bundle.cpu_flags(),
        }

    async def create(self, build: Build) -> GvisorBox:
        return await self._begin(build, "run")

    async def restore(self, build: Build, image: Path) -> GvisorBox:
        return await self._begin(build, "restore", f"-image-path={image}")

    async def _begin(self, build: Build, verb: str, *options: str) -> GvisorBox:
        if build.network:
            self.capabilities.need("network", self.name)
        await asyncio.to_thread(volume.mount_root, build.volume, build.root.lower)
        groups = limits.make(build.name, build.limits, processes=HOST_PROCESSES)
        box = GvisorBox(self, build, groups)
        try:
            box.folder.mkdir()
            config = json.dumps(bundle.config(build))
            (box.folder / "config.json").write_text(config, encoding="utf-8")
            words = [*box.runsc, verb, "-detach", *options, "-bundle", str(box.folder), build.name]
            process = await launch.start(groups.wrap(words), box.launched, box.log, self.environ)
            box.launched.close_inner()
            code = await launch.finished(process, STEP_SECONDS)
            if code != 0:
                why = launch.failure(code, STEP_SECONDS, box.log)
                raise HoldfastError(f"runsc {verb}: {why}")
        except BaseException:
            box.launched.close()
            await box.end()
            await box.clear()
            raise
        return box


class GvisorBox:
    """One container of runsc, in a folder of its own."""

    def __init__(self, engine: GvisorEngine, build: Build, groups: Groups) -> None:
        self._engine = engine
        self._build = build
        self._groups = groups
        self._ended = False
        self.folder = build.folder / "bundle"
        self.log = build.folder / "runsc.log"
        self.launched = launch.Pipes()
        self.runsc = [
            str(engine.program),
            f"--root={build.folder / 'state'}",
            f"--platform={PLATFORM}",
            "--network=none",
            "--ignore-cgroups",
            "--overlay2=none",
        ]

    @property
    def pipes(self) -> tuple[int, int]:
        return self.launched.ours

    async def freeze(self, image: Path) -> None:
        name = self._build.name
        direct = self._direct
        try:
            if direct is not None:
                await asyncio.to_thread(control.pause, direct, STEP_SECONDS)
            else:
                await self._do("pause", name)
        except HoldfastError as error:
            raise CaptureFailed(f"the sandbox could not be paused: {error}") from None
        try:
            # Left running, but paused around it: if storing fails it can go on as it was, and
            # until then nothing changes the files that belong to this memory.
            if direct is not None:
                await asyncio.to_thread(control.checkpoint, direct, image, STEP_SECONDS)
            else:
                flags = ("-compression=none", "-leave-running", f"-image-path={image}")
                await self._do("checkpoint", *flags, name)
        except (HoldfastError, OSError) as error:
            await self.thaw()
            raise CaptureFailed(f"runsc could not take a checkpoint: {error}") from None

    async def thaw(self) -> None:
        if self._direct is not None:
            await asyncio.to_thread(control.resume, self._direct, STEP_SECONDS)
        else:
            await self._do("resume", self._build.name)

    @cached_property
    def _direct(self) -> Path | None:
        """The way to the kernel that needs no command. One way for all: the command notes what
        it did, and goes by its notes."""
        place = control.socket_of(self._build.folder / "state", self._build.name)
        short = len(str(place)) <= control.LONGEST_PATH
        return place if short and self._engine.speaks else None

    async def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._groups.folders:
            self._groups.kill()
        else:
            await self._try("kill", self._build.name, "KILL")

    async def clear(self) -> None:
        if not self._groups.folders:
            # It waits for more than a second. Where the groups have killed everything, what is
            # left are files in a folder of its own.
            await self._try("delete", "-force", self._build.name)
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        self._groups.kill()
        self._groups.remove()
        volume.clear(self._build.volume)
        clear(self._build.folder)

    async def _do(self, *words: str) -> None:
        argv = [*self.runsc, *words]
        await launch.command(argv, self.log, self._engine.environ, STEP_SECONDS)

    async def _try(self, *words: str) -> None:
        """What may fail because the container is gone already; the log has it."""
        try:
            await self._do(*words)
        except HoldfastError:
            return
