"""gVisor: a kernel of its own for every sandbox, which freezes memory and processes exactly.

Nothing is ever started with `runsc exec`: what was, dies at a restore. Every process is a child of
the agent.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

from holdfast.model.errors import CaptureFailed, HoldfastError, Unsupported, from_os_error
from holdfast.runtime import engines as found
from holdfast.runtime.command import run
from holdfast.sandbox.contract import Build, Capabilities, Limits
from holdfast.sandbox.engines import barrier, bundle, control
from holdfast.sandbox.engines.bundle import Config
from holdfast.sandbox.engines.container import STEP_SECONDS, ContainerBox, ContainerEngine
from holdfast.sandbox.engines.lifeline import Lifeline
from holdfast.sandbox.engines.still import Still
from holdfast.sandbox.limits import Groups, change
from holdfast.sandbox.spawning import Spawner
from holdfast.sandbox.whole import in_thread, in_thread_or_undone

PLATFORM = "systrap"
# A process inside is more than one outside: stubs of the platform, threads of the kernel.
HOST_PROCESSES = 4096
# Plain programs do without a child; one waits for what needs one.
_FORKS = {"FORKS": "dear", "SPARES": "1"}
_LIMITING = ("CAP_SYS_RESOURCE",)  # the agent takes limits on that are a program's, and others next


class GvisorEngine(ContainerEngine["GvisorBox"]):
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
        prepared=True,
    )

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        engine = found.find("runsc", environ)
        if engine is None:
            raise Unsupported("there is no runsc on this machine", hint="make setup, as root")
        if os.geteuid() != 0:
            raise Unsupported("the engine gvisor needs root", hint="the engine process does not")
        self.program = engine.program
        self.environ = found.environment(environ)
        self.spawn = Spawner(barrier.forgo)

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

    def host_processes(self, build: Build) -> int:
        return HOST_PROCESSES

    def box(self, build: Build, groups: Groups) -> GvisorBox:
        return GvisorBox(self, build, groups)

    async def create(self, build: Build) -> GvisorBox:
        return await self.begin(build, "run", "--detach")

    async def restore(self, build: Build, image: Path) -> GvisorBox:
        return await self.begin(build, "restore", "--detach", f"-image-path={image}")

    async def prepare(self, build: Build) -> GvisorBox:
        number = build.folder / "kernel.pid"
        box = await self.begin(build, "create", f"--pid-file={number}", tied=True)
        try:
            await box.wait_for_image(number)
        except BaseException as error:
            box.launched.close()
            await box.end()
            await box.clear()
            if isinstance(error, OSError):
                raise from_os_error(error, "preparing a sandbox") from error
            raise
        return box


class GvisorBox(ContainerBox):
    """One container of runsc."""

    flags = (
        f"--platform={PLATFORM}",
        "--network=none",
        "--ignore-cgroups",
        "--overlay2=none",
        # What is mounted is read-only, and nobody asks the host at every step of every path.
        "--file-access-mounts=exclusive",
    )

    def __init__(self, engine: GvisorEngine, build: Build, groups: Groups) -> None:
        super().__init__(engine.program, engine.environ, build, groups, engine.spawn)
        self._engine = engine
        self._lifeline: Lifeline | None = None
        self._still: Still | None = None

    def config(self) -> Config:
        run: Config = {"destination": "/run", "type": "tmpfs", "source": "tmpfs"}
        run["options"] = ["nosuid", "nodev", "mode=755"]  # the agent's own, and nobody else's
        return bundle.config(self._build, run, environ=_FORKS, capabilities=_LIMITING)

    def launching(self, words: Sequence[str]) -> tuple[list[str], Path | None]:
        return self._groups.wrap(words), self.log

    async def tie(self) -> None:
        """Before anything is created: whoever kills the server meanwhile leaves nothing either."""
        if not self._groups.folders:
            raise Unsupported("without control groups, what waits would outlive a killed server")
        self._lifeline = await Lifeline.tie(self._groups, self.log, self._environ, self._spawn)

    async def wait_for_image(self, number: Path) -> None:
        """Make ready what was created, as far as that can be done ahead, and let its kernel stand
        still. Raises HoldfastError or OSError."""
        if self._direct is not None:
            await in_thread(control.connect_loopback, self._direct, STEP_SECONDS)
        self._still = Still(int(number.read_text()))

    @property
    def alive(self) -> bool:
        return self.launched.held

    def limit(self, limits: Limits) -> None:
        change(self._groups, limits, processes=HOST_PROCESSES)

    async def restore(self, image: Path) -> None:
        if self._still is not None:
            self._still.go()
        if self._direct is not None:
            await in_thread(control.restore, self._direct, image, STEP_SECONDS)
        else:
            options = ("--detach", f"-image-path={image}", "--bundle", str(self.folder))
            await self.command("restore", *options, self._build.name)
        if self._lifeline is not None:
            self._lifeline.untie()  # the agent hears from now on when we are gone

    @property
    def in_order(self) -> Sequence[str]:
        return control.IN_ORDER if self._direct is not None else ()

    async def pause(self) -> None:
        direct = self._direct
        try:
            if direct is not None:
                # Not more often than it was paused: its kernel ends over that.
                resume = partial(control.resume, direct, STEP_SECONDS)
                await in_thread_or_undone(lambda _: resume(), control.pause, direct, STEP_SECONDS)
            else:
                await self.command("pause", self._build.name)
        except (HoldfastError, OSError) as error:
            raise CaptureFailed(f"the sandbox could not be paused: {error}") from None

    async def freeze(self, image: Path) -> None:
        name = self._build.name
        direct = self._direct
        await self.pause()
        try:
            # Left running, but paused around it: if storing fails it can go on as it was, and
            # until then nothing changes the files that belong to this memory.
            if direct is not None:
                await in_thread(control.checkpoint, direct, image, STEP_SECONDS)
            else:
                flags = ("-compression=none", "-leave-running", f"-image-path={image}")
                await self.command("checkpoint", *flags, name)
        except BaseException as error:
            await self.go_on()
            if isinstance(error, HoldfastError | OSError):
                raise CaptureFailed(f"runsc could not take a checkpoint: {error}") from None
            raise

    async def thaw(self) -> None:
        if self._direct is not None:
            await in_thread(control.resume, self._direct, STEP_SECONDS)
        else:
            await self.command("resume", self._build.name)

    @cached_property
    def _direct(self) -> Path | None:
        """The way to the kernel that needs no command. One way for all: the command notes what
        it did, and goes by its notes."""
        place = control.socket_of(self._build.folder / "state", self._build.name)
        return place if self._engine.speaks and place.is_socket() else None

    async def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._lifeline is not None:
            self._lifeline.cut()
        if self._still is not None:
            self._still.forget()
        if self._groups.folders:
            self._groups.kill()
        else:
            await self.attempt("kill", self._build.name, "KILL")

    async def delete(self) -> None:
        if not self._groups.folders:
            # It waits for more than a second. Where the groups have killed everything, what is
            # left are files in a folder of its own.
            await self.attempt("delete", "-force", self._build.name)
