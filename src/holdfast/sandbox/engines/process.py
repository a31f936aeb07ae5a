"""Plain processes in namespaces of their own: for where no other engine is.

It is no security boundary: the kernel is the host's. A checkpoint is the files; what was running
begins anew.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.model.errors import Unsupported
from holdfast.runtime import engines as found
from holdfast.runtime.trial import clear
from holdfast.sandbox import launch, limits, volume
from holdfast.sandbox.agent import USER
from holdfast.sandbox.contract import Build, Capabilities, Waiting
from holdfast.sandbox.engines.namespaces import Namespaces, UserNamespaces
from holdfast.sandbox.engines.plain import Plain, tasks_of
from holdfast.sandbox.limits import Groups
from holdfast.sandbox.spawning import Begun
from holdfast.sandbox.whole import in_thread, whole

log = logging.getLogger("holdfast.sandbox")
_NO_SPARES = {"SPARES": "0"}
# Who put a key there is all the same to the kernel: all programs of all sandboxes are one user.
_NO_KEYRINGS = {"KEYRINGS": "off"}
_HIDDEN = ("/proc/keys", "/proc/key-users")
_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL", "CAP_CHOWN")


class Bubblewrap(launch.Walls):
    """Starts a box with bubblewrap, which needs no root."""

    def __init__(self, program: Path) -> None:
        self._program = program

    def words(self, build: Build) -> list[str]:
        return [str(self._program), *arguments(build), "--", *build.root.agent]

    def environ(self, build: Build) -> Mapping[str, str]:
        return {"PATH": os.defpath}

    def own_users(self, build: Build) -> bool:
        return not build.volume.privileged


def _launcher(environ: Mapping[str, str]) -> launch.Launcher:
    """The best there is, down to no walls at all. Raises Unsupported, in words."""
    engine = found.find("bwrap", environ)
    if engine is not None:
        return Bubblewrap(engine.program)
    try:
        return Namespaces() if os.geteuid() == 0 else UserNamespaces()
    except Unsupported as trouble:
        if os.geteuid() == 0:
            raise  # nothing of root's is to run without any walls
        log.warning("sandboxes have no walls at all: there is no bubblewrap, and %s", trouble)
        return Plain()


class ProcessEngine:
    """Sandboxes as processes in namespaces: bubblewrap's or our own."""

    name = "process"
    capabilities = Capabilities(
        exact_checkpoint=False,
        during_execution=False,
        fork=True,
        snapshot=True,
        network=True,
        pty=True,
        boundary=False,
        prepared=False,
    )

    def __init__(
        self, environ: Mapping[str, str] = os.environ, launcher: launch.Launcher | None = None
    ) -> None:
        self.launcher = launcher or _launcher(environ)

    def environment(self) -> Mapping[str, object]:
        return {"engine": self.name, "machine": platform.machine()}

    async def create(self, build: Build) -> ProcessBox:
        privileged = build.volume.privileged
        # The agent, and no child of it that waits: to fork is cheap here, and one that waits would
        # take the place of a program's, or leave it one too many.
        groups = limits.make(build.name, build.limits, processes=build.limits.processes + 1)
        try:
            box = ProcessBox(build, groups, self.launcher)
        except BaseException:
            groups.remove()
            raise
        try:
            if privileged:
                await in_thread(volume.mount_root, build.volume, build.root.lower)
            words = self.launcher.words(build)
            environ = {**self.launcher.environ(build), **_NO_SPARES, **_NO_KEYRINGS}
            box.process = await launch.start(groups.wrap(words), box.launched, box.log, environ)
            box.launched.close_inner()
        except BaseException:
            box.launched.close()
            await box.clear()
            raise
        return box

    async def restore(self, build: Build, image: Path) -> ProcessBox:
        return await self.create(build)

    async def prepare(self, build: Build) -> Waiting:
        raise self.capabilities.lack("prepared", self.name)


class ProcessBox:
    """What was launched, and everything below it."""

    process: Begun | None = None
    in_order: Sequence[str] = ()  # there is no image

    def __init__(self, build: Build, groups: Groups, launcher: launch.Launcher) -> None:
        self._build = build
        self._groups = groups
        self._launcher = launcher
        self.places = launcher.places(build)
        self.log = build.folder / "launch.log"
        self.launched = launch.Pipes()

    @property
    def pipes(self) -> tuple[int, int]:
        return self.launched.ours

    def ceilings(self, limits: Mapping[str, int]) -> Mapping[str, int]:
        """As they are where the sandbox has users of its own. Else the kernel counts the processes
        of everybody's programs together: the group counts instead, or others are counted in."""
        most = limits.get("NPROC")
        if most is None or self._launcher.own_users(self._build):
            return limits
        rest = {name: limit for name, limit in limits.items() if name != "NPROC"}
        if "pids" not in self._groups.missing:
            return rest
        return {**rest, "NPROC": most + tasks_of(os.geteuid() or USER)}

    async def freeze(self, image: Path) -> None:
        """Only files are kept, and those are where they are."""

    async def pause(self) -> None:
        """Nothing is stopped: what a program writes meanwhile is in the files, or is not."""

    async def thaw(self) -> None:
        """Nothing was stopped."""

    async def end(self) -> None:
        await whole(self._end())

    async def _end(self) -> None:
        self._groups.kill()
        if self.process is not None and self.process.returncode is None:
            await in_thread(self._launcher.end, self.process.pid)
            launch.kill(self.process)
            await self.process.wait()

    async def clear(self) -> None:
        await whole(self._clear())

    async def _clear(self) -> None:
        await self.end()
        await in_thread(self._remove)

    def _remove(self) -> None:
        self._groups.remove()
        volume.clear(self._build.volume)
        clear(self._build.folder)


def arguments(build: Build) -> list[str]:
    """What bubblewrap is told: namespaces, mounts, an empty environment."""
    words = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    words += ["--as-pid-1", "--die-with-parent", "--hostname", "sandbox", "--clearenv"]
    environ = {
        "PATH": "/usr/bin:/bin",
        "SHARED_MEMORY": "/dev/shm",
        **build.root.environ,
        **_NO_KEYRINGS,
    }
    for name, value in environ.items():
        words += ["--setenv", name, value]
    if not build.network:
        words.append("--unshare-net")
    upper = build.volume.upper
    if build.volume.privileged:
        words += ["--bind", str(build.volume.merged), "/", "--cap-drop", "ALL"]
        for capability in _CAPABILITIES:
            words += ["--cap-add", capability]
    else:
        words += ["--unshare-user", "--ro-bind", str(build.root.lower), "/"]
        for name in ("root", "tmp"):
            words += ["--bind", str(upper / name), f"/{name}"]
    for mount in build.root.mounts:
        words += ["--ro-bind", mount.source, mount.target]
    words += ["--proc", "/proc"]
    for name in _HIDDEN:
        if os.path.exists(name):
            words += ["--ro-bind", "/dev/null", name]
    words += ["--dev", "/dev", "--tmpfs", "/run", "--chdir", "/"]
    if build.network and os.path.exists("/etc/resolv.conf"):
        words += ["--ro-bind", os.path.realpath("/etc/resolv.conf"), "/etc/resolv.conf"]
    return words
