"""runc with CRIU: containers of the host's kernel, which freezes memory and processes exactly.

The kernel is the host's, so it is a thinner wall than gVisor's; programs run at full speed, and
CRIU writes plain pages of memory that the store can tell apart page by page.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from holdfast.sandbox.engines import bundle
from holdfast.sandbox.limits import Groups

STEP_SECONDS = 60.0
# What CRIU is asked for besides: files that were deleted while open, whatever their size.
CRIU_OPTIONS = "ghost-limit 104857600\nlink-remap\n"
# A user namespace in which everybody has the number he has outside: the powers of root inside
# reach no further than the sandbox, and CRIU has all of them over it.
_SAME_IDS = {"containerID": 0, "hostID": 0, "size": 65536}
_MASKED = ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sched_debug"]
_READ_ONLY = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"]


class RuncEngine:
    """Sandboxes under `runc`."""

    name = "runc"
    capabilities = Capabilities(
        exact_checkpoint=True,
        during_execution=True,
        fork=True,
        snapshot=True,
        network=False,
        pty=True,
        boundary=False,
    )

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        engine = found.find("runc", environ)
        criu = found.find("criu", environ)
        if engine is None or criu is None:
            lacking = "runc" if engine is None else "criu"
            raise Unsupported(f"there is no {lacking} on this machine", hint="make setup, as root")
        if os.geteuid() != 0:
            raise Unsupported("the engine runc needs root", hint="the engine process does not")
        self.program = engine.program
        self.criu = criu.program
        self.environ = found.environment(environ)

    def environment(self) -> Mapping[str, object]:
        return self._environment

    @cached_property
    def _environment(self) -> dict[str, object]:
        return {
            "engine": self.name,
            "runc": self._version(self.program),
            "criu": self._version(self.criu),
            "kernel": platform.release(),  # the vDSO and what CRIU knows of its sockets
            "machine": platform.machine(),
            "python": sys.version,
            "cpu": bundle.cpu_flags(),
        }

    def _version(self, program: Path) -> str:
        outcome = run((str(program), "--version"), seconds=STEP_SECONDS, environ=self.environ)
        return " ".join(outcome.stdout.split())[:200]

    async def create(self, build: Build) -> RuncBox:
        return await self._begin(build, "run")

    async def restore(self, build: Build, image: Path) -> RuncBox:
        work = build.folder / "work"
        return await self._begin(build, "restore", f"--image-path={image}", f"--work-path={work}")

    async def _begin(self, build: Build, verb: str, *options: str) -> RuncBox:
        if build.network:
            self.capabilities.need("network", self.name)
        await asyncio.to_thread(volume.mount_root, build.volume, build.root.lower)
        groups = limits.make(build.name, build.limits, processes=build.limits.processes + 2)
        box = RuncBox(self, build, groups)
        try:
            await asyncio.to_thread(box.lay_out)
            words = [*box.runc, verb, "--detach", *options, "--bundle", str(box.folder), build.name]
            process = await launch.start(words, box.launched, None, self.environ)
            box.launched.close_inner()
            code = await launch.finished(process, STEP_SECONDS)
            if code != 0:
                why = launch.failure(code, STEP_SECONDS, box.log)
                told = criu_error(build.folder / "work" / "restore.log")
                raise HoldfastError(f"runc {verb}: {told or why}")
        except BaseException:
            box.launched.close()
            await box.end()
            await box.clear()
            raise
        return box


class RuncBox:
    """One container of runc, in a folder of its own."""

    def __init__(self, engine: RuncEngine, build: Build, groups: Groups) -> None:
        self._engine = engine
        self._build = build
        self._groups = groups  # runc joins them by their path
        self._ended = False
        self.folder = build.folder / "bundle"
        self.log = build.folder / "runc.log"
        self.launched = launch.Pipes()
        self.runc = [
            str(engine.program),
            f"--root={build.folder / 'state'}",
            f"--log={self.log}",
        ]

    def lay_out(self) -> None:
        """The bundle, and what CRIU reads. Blocking."""
        self.folder.mkdir()
        (self._build.folder / "work").mkdir()
        options = self._build.folder / "criu.conf"
        options.write_text(CRIU_OPTIONS, encoding="utf-8")
        settled = bundle.config(
            self._build,
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]},
            {
                "destination": "/dev/pts",
                "type": "devpts",
                "source": "devpts",
                "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
            },
            {
                "destination": "/dev/shm",
                "type": "tmpfs",
                "source": "shm",
                "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"],
            },
            cgroupsPath=f"/{limits.FAMILY}/{self._build.name}",
            namespaces=[{"type": kind} for kind in (*bundle.NAMESPACES, "user")],
            uidMappings=[_SAME_IDS],
            gidMappings=[_SAME_IDS],
            maskedPaths=_MASKED,
            readonlyPaths=_READ_ONLY,
        )
        settled["annotations"] = {"org.criu.config": str(options)}
        (self.folder / "config.json").write_text(json.dumps(settled), encoding="utf-8")

    @property
    def pipes(self) -> tuple[int, int]:
        return self.launched.ours

    async def freeze(self, image: Path) -> None:
        name = self._build.name
        work = self._build.folder / "work"
        try:
            await self._do("pause", name)
        except HoldfastError as error:
            raise CaptureFailed(f"the sandbox could not be paused: {error}") from None
        try:
            image.mkdir(mode=0o700)  # runc would make a folder that nobody can enter
            places = (f"--image-path={image}", f"--work-path={work}")
            await self._do("checkpoint", "--leave-running", "--file-locks", *places, name)
            await asyncio.to_thread(self._name_pipes, image)
        except (HoldfastError, OSError) as error:
            await self.thaw()
            why = criu_error(work / "dump.log") or error
            raise CaptureFailed(f"CRIU could not take a checkpoint: {why}") from None

    def _name_pipes(self, image: Path) -> None:
        """Say which pipes are the agent's. runc looks at its standard streams, from which the
        agent has moved them away."""
        named = [*(f"pipe:[{inode}]" for inode in self.launched.inodes), "/dev/null"]
        (image / "descriptors.json").write_text(json.dumps(named), encoding="utf-8")

    async def thaw(self) -> None:
        await self._do("resume", self._build.name)

    async def end(self) -> None:
        if not self._ended:
            self._ended = True
            await asyncio.to_thread(limits.left_by(self._build.name).kill)

    async def clear(self) -> None:
        with contextlib.suppress(HoldfastError):  # never made, or gone already; the log has it
            await self._do("delete", "--force", self._build.name)
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        left = limits.left_by(self._build.name)
        left.kill()
        left.remove()
        volume.clear(self._build.volume)
        clear(self._build.folder)  # unmounts what a killed CRIU left there

    async def _do(self, *words: str) -> None:
        argv = [*self.runc, *words]
        await launch.command(argv, self.log, self._engine.environ, STEP_SECONDS)


def criu_error(log: Path) -> str:
    """The first error in a log of CRIU's: those that follow come of it. That it may not raise a
    limit of its own is none."""
    try:
        with open(log, encoding="utf-8", errors="replace") as lines:
            found = (
                line for line in lines if "Error" in line and "rlimit: Can't setup" not in line
            )
            return next(found, "").strip()[:300]
    except OSError:
        return ""
