"""Containers of an OCI runtime: what `runsc` and `runc` share, from the bundle to the last file."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from holdfast.model.errors import HoldfastError
from holdfast.runtime.trial import clear
from holdfast.sandbox import launch, limits, volume
from holdfast.sandbox.agent import OWN_PROCESSES
from holdfast.sandbox.contract import Build, Capabilities, Waiting
from holdfast.sandbox.engines.bundle import Config
from holdfast.sandbox.limits import Groups
from holdfast.sandbox.spawning import Spawn, as_usual
from holdfast.sandbox.whole import in_thread, whole

log = logging.getLogger("holdfast.sandbox")
STEP_SECONDS = 60.0  # for one command of the runtime


class ContainerBox:
    """One container, in a folder of its own."""

    places: ClassVar[Mapping[str, str]] = {}  # a container has names of its own
    flags: ClassVar[tuple[str, ...]] = ()  # what the runtime is told in every command

    def __init__(
        self,
        program: Path,
        environ: Mapping[str, str],
        build: Build,
        groups: Groups,
        spawn: Spawn = as_usual,
    ) -> None:
        self._spawn = spawn
        self._environ = environ
        self._build = build
        self._groups = groups
        self._ended = False
        self.folder = build.folder / "bundle"
        self.log = build.folder / f"{program.name}.log"
        self.launched = launch.Pipes()
        self._command = [str(program), f"--root={build.folder / 'state'}", *self.flags]

    @property
    def pipes(self) -> tuple[int, int]:
        return self.launched.ours

    @property
    def in_order(self) -> Sequence[str]:
        return ()  # nothing is known of how an image is written

    # -- what each runtime has of its own

    def config(self) -> Config:
        """What its bundle says. Blocking: it may write more beside it."""
        raise NotImplementedError  # each runtime has its own

    def launching(self, words: Sequence[str]) -> tuple[list[str], Path | None]:
        """How its first command is begun, and where that may complain."""
        raise NotImplementedError  # each runtime has its own

    def complaint(self, verb: str) -> str:
        """What the runtime's own tools noted about a failure, if anything."""
        return ""

    def groups(self) -> Groups:
        """The control groups it is in now."""
        return self._groups

    async def end(self) -> None:
        raise NotImplementedError  # each runtime has its own

    async def thaw(self) -> None:
        raise NotImplementedError  # each runtime has its own

    async def go_on(self) -> None:
        """After a freeze that failed. One that cannot go on ends, which everybody hears of; it
        would stand still for ever."""
        try:
            await self.thaw()
        except (HoldfastError, OSError):
            log.exception("sandbox %s could not go on", self._build.name)
            await self.end()

    async def delete(self) -> None:
        """What the runtime has to be told once everything has ended."""
        raise NotImplementedError  # each runtime has its own

    # -- what they share

    async def tie(self) -> None:
        """See to it that what is begun ends with us, where nothing inside would."""

    async def begin(self, verb: str, *options: str, tied: bool = False) -> None:
        """Raises HoldfastError and leaves nothing."""
        try:
            words = [verb, *options, "--bundle", str(self.folder), self._build.name]
            try:
                if tied:
                    await self.tie()
                await in_thread(self._lay_out)
                argv, log = self.launching([*self._command, *words])
                process = await launch.start(argv, self.launched, log, self._environ, self._spawn)
            finally:
                self.launched.close_inner()
            code = await launch.finished(process, STEP_SECONDS)
            if code != 0:
                why = self.complaint(verb) or launch.failure(code, STEP_SECONDS, self.log)
                raise HoldfastError(f"{Path(self._command[0]).name} {verb}: {why}")
        except BaseException:
            self.launched.close()
            await self.end()
            await self.clear()
            raise

    def _lay_out(self) -> None:
        """Its root and its bundle. Blocking."""
        volume.mount_root(self._build.volume, self._build.root.lower)
        self.folder.mkdir()
        text = json.dumps(self.config())
        (self.folder / "config.json").write_text(text, encoding="utf-8")

    def ceilings(self, limits: Mapping[str, int]) -> Mapping[str, int]:
        """As they are: a container has a kernel, or users, of its own."""
        return limits

    async def clear(self) -> None:
        await whole(self._clear())

    async def _clear(self) -> None:
        await self.delete()
        await in_thread(self._remove)

    def _remove(self) -> None:
        groups = self.groups()
        groups.kill()
        groups.remove()
        volume.clear(self._build.volume)
        clear(self._build.folder)  # unmounts what a killed engine left there

    async def command(self, *words: str) -> None:
        """One command of the runtime, to its end. Raises HoldfastError with its last words."""
        argv = [*self._command, *words]
        await launch.command(argv, self.log, self._environ, STEP_SECONDS, self._spawn)

    async def attempt(self, *words: str) -> None:
        """What may fail because the container is gone already; the log has it."""
        try:
            await self.command(*words)
        except HoldfastError:
            return


BoxType = TypeVar("BoxType", bound=ContainerBox)


class ContainerEngine(Generic[BoxType]):
    """Makes them."""

    name: str
    capabilities: Capabilities

    def host_processes(self, build: Build) -> int:
        """How many of the host's processes one sandbox may be."""
        return build.limits.processes + OWN_PROCESSES

    def box(self, build: Build, groups: Groups) -> BoxType:
        raise NotImplementedError  # each runtime has its own

    async def prepare(self, build: Build) -> Waiting:
        raise self.capabilities.lack("prepared", self.name)

    async def begin(self, build: Build, verb: str, *options: str, tied: bool = False) -> BoxType:
        if build.network:
            self.capabilities.need("network", self.name)
        groups = limits.make(build.name, build.limits, processes=self.host_processes(build))
        try:
            box = self.box(build, groups)
        except BaseException:
            groups.remove()
            raise
        await box.begin(verb, *options, tied=tied)
        return box
