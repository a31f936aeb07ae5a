"""runc with CRIU: containers of the host's kernel, which freezes memory and processes exactly.

The kernel is the host's, so it is a thinner wall than gVisor's; programs run at full speed, and
CRIU writes plain pages of memory that the store can tell apart page by page.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from holdfast.model.errors import CaptureFailed, HoldfastError, Unsupported
from holdfast.oci import loopback
from holdfast.runtime import engines as found
from holdfast.runtime.command import run
from holdfast.sandbox import limits
from holdfast.sandbox.contract import Build, Capabilities
from holdfast.sandbox.engines import bundle
from holdfast.sandbox.engines.bundle import Config
from holdfast.sandbox.engines.container import STEP_SECONDS, ContainerBox, ContainerEngine
from holdfast.sandbox.limits import Groups
from holdfast.sandbox.whole import in_thread

# What CRIU is asked for besides: files that were deleted while open, whatever their size; and
# connections over the loopback do not keep it from being frozen, and are closed in what comes back.
# A network that leads nowhere need not be cut off meanwhile: that runs two programs each time.
CRIU_OPTIONS = "ghost-limit 104857600\nlink-remap\ntcp-close\nnetwork-lock skip\n"
# A user namespace in which everybody has the number he has outside: the powers of root inside
# reach no further than the sandbox, and CRIU has all of them over it.
_SAME_IDS = {"containerID": 0, "hostID": 0, "size": 65536}
_MASKED = ["/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug"]
_READ_ONLY = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"]


class RuncEngine(ContainerEngine["RuncBox"]):
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
        prepared=False,
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

    def box(self, build: Build, groups: Groups) -> RuncBox:
        return RuncBox(self.program, self.environ, build, groups)

    async def create(self, build: Build) -> RuncBox:
        return await self.begin(build, "run", "--detach")

    async def restore(self, build: Build, image: Path) -> RuncBox:
        work = build.folder / "work"
        places = (f"--image-path={image}", f"--work-path={work}")
        box = await self.begin(build, "restore", "--detach", *places)
        try:
            await in_thread(box.bring_loopback_up)
        except BaseException as error:
            box.launched.close()
            await box.end()
            await box.clear()
            if isinstance(error, OSError | ValueError | KeyError):
                raise HoldfastError(f"the restored sandbox has no loopback: {error}") from None
            raise
        return box


class RuncBox(ContainerBox):
    """One container of runc."""

    def config(self) -> Config:
        """The bundle's, with what CRIU reads beside it."""
        (self._build.folder / "work").mkdir()
        options = self._build.folder / "criu.conf"
        options.write_text(CRIU_OPTIONS, encoding="utf-8")
        settled = bundle.config(
            self._build,
            # The only one in memory: CRIU runs `tar` and `gzip` for each, freezing and restoring.
            {
                "destination": "/dev",
                "type": "tmpfs",
                "source": "tmpfs",
                "options": ["nosuid", "noexec", "mode=755", "size=65536k"],
            },
            {
                "destination": "/dev/pts",
                "type": "devpts",
                "source": "devpts",
                "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
            },
            environ={"KEYRINGS": "off"},
            cgroupsPath=f"/{limits.FAMILY}/{self._build.name}",
            namespaces=[{"type": kind} for kind in (*bundle.NAMESPACES, "user")],
            uidMappings=[_SAME_IDS],
            gidMappings=[_SAME_IDS],
            maskedPaths=_MASKED,
            readonlyPaths=_READ_ONLY,
        )
        settled["annotations"] = {"org.criu.config": str(options)}
        return settled

    def launching(self, words: Sequence[str]) -> tuple[list[str], Path | None]:
        # runc joins the groups by their path, and notes what goes wrong by itself: a container
        # with a file of the host among its streams cannot be frozen.
        return [words[0], f"--log={self.log}", *words[1:]], None

    def complaint(self, verb: str) -> str:
        return criu_error(self._build.folder / "work" / f"{verb}.log")

    def groups(self) -> Groups:
        return limits.left_by(self._build.name)  # runc made more of them than we did

    async def pause(self) -> None:
        try:
            # As `runc pause` and `runc resume` do it, without starting them.
            await in_thread(self.groups().stop, STEP_SECONDS)
        except BaseException as error:
            await self.go_on()
            if isinstance(error, HoldfastError | OSError):
                raise CaptureFailed(f"the sandbox could not be paused: {error}") from None
            raise

    async def freeze(self, image: Path) -> None:
        name = self._build.name
        work = self._build.folder / "work"
        await self.pause()
        try:
            image.mkdir(mode=0o700)  # runc would make a folder that nobody can enter
            places = (f"--image-path={image}", f"--work-path={work}")
            await self.command("checkpoint", "--leave-running", "--file-locks", *places, name)
            await in_thread(self._name_pipes, image)
        except BaseException as error:
            await self.go_on()
            if isinstance(error, HoldfastError | OSError):
                why = criu_error(work / "dump.log") or error
                raise CaptureFailed(f"CRIU could not take a checkpoint: {why}") from None
            raise

    def bring_loopback_up(self) -> None:
        """runc leaves networks out of its dumps: a restored one has a loopback that is down."""
        state = self._build.folder / "state" / self._build.name / "state.json"
        loopback.bring_up(json.loads(state.read_bytes())["init_process_pid"])

    def _name_pipes(self, image: Path) -> None:
        """Say which pipes are the agent's. runc looks at its standard streams, from which the
        agent has moved them away."""
        named = [*(f"pipe:[{inode}]" for inode in self.launched.inodes), "/dev/null"]
        (image / "descriptors.json").write_text(json.dumps(named), encoding="utf-8")

    async def thaw(self) -> None:
        await in_thread(self.groups().go)

    async def end(self) -> None:
        if not self._ended:
            await in_thread(self.groups().kill)
            self._ended = True

    async def delete(self) -> None:
        await self.attempt("delete", "--force", self._build.name)


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
