"""Docker and Podman for tests, each with folders of its own and the wrapper as its runtime."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.runtime import engines
from holdfast.runtime.trial import clear, detach
from holdfast.testing.containerd import TRAMPOLINE
from holdfast.testing.images import write_image
from holdfast.testing.waiting import eventually

IMAGE = "holdfast-test"
_LIMIT = "nofile=1024:4096"  # one that may be set again when a container is restored
_PODMAN = """\
[containers]
default_ulimits = ["{limit}", "nproc=1024:4096"]
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{folder}/tmp"
runtime = "holdfast"
[engine.runtimes]
holdfast = ["{folder}/holdfast-runc"]
"""


class Engine:
    """What both can do. `words` begins each command line."""

    words: Sequence[str]

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, mode=0o755)
        self.folder = folder
        self.environ = {
            **engines.environment(),
            "HOLDFAST_POLICY": str(folder / "policy.toml"),
            "HOLDFAST_RUN": str(folder / "run"),
            "HOLDFAST_HOME": str(folder / "home"),
            "HOLDFAST_PYTHON": sys.executable,
        }
        paths = {"checkpoint_path": "checkpoints", "work_path": "work", "log": "runc.log"}
        policy = "".join(f'{key} = "{folder}/{name}"\n' for key, name in paths.items())
        (folder / "policy.toml").write_text(policy)
        write_image(folder / "image.tar")

    def call(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            [*self.words, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self.environ,
            timeout=120,
            check=False,
        )
        if check and done.returncode != 0:
            log = self.folder / "runc.log"
            raise AssertionError(f"{words}: {done.stderr}{log.read_text() if log.exists() else ''}")
        return done.stdout

    def run(self, name: str, *args: str, options: Sequence[str] = ()) -> None:
        opt_in = ("-e", "HOLDFAST_CHECKPOINT=1", "-e", f"HOLDFAST_NAME={name}")
        self.call("run", "-d", "--name", name, *opt_in, *options, IMAGE, *args)

    def exec(self, name: str, *args: str) -> str:
        return self.call("exec", name, *args)

    def running(self, name: str) -> bool:
        return self.call("inspect", "-f", "{{.State.Running}}", name).strip() == "true"

    def close(self) -> None:
        for name in self.call("ps", "-aq", check=False).split():
            self.call("rm", "-f", name, check=False)


class Docker(Engine):
    """A dockerd of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        address = f"unix://{folder}/docker.sock"
        self.words = (_program("docker"), "-H", address)
        self._log = (folder / "dockerd.log").open("wb")
        self._process = subprocess.Popen(
            [
                *(_program("dockerd"), "-H", address, "--experimental"),
                *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
                *("--pidfile", str(folder / "docker.pid"), "--default-ulimit", _LIMIT),
                *("--iptables=false", "--ip6tables=false", "--bridge=none"),
                *("--add-runtime", f"holdfast={TRAMPOLINE}", "--default-runtime", "holdfast"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self.environ,
        )
        try:
            eventually(lambda: bool(self.call("version", check=False)), "dockerd is up", 60)
            eventually(lambda: "Server" in self.call("version", check=False), "it answers", 60)
            self.call("load", "-i", str(folder / "image.tar"))
        except BaseException:
            self.close()
            raise

    def run(self, name: str, *args: str, options: Sequence[str] = ()) -> None:
        super().run(name, *args, options=("--network", "none", *options))

    def close(self) -> None:
        if self._process.poll() is None:
            super().close()
            self._process.terminate()
            self._process.wait(60)
        self._log.close()
        clear(self.folder)


class Podman(Engine):
    """Podman with a storage of its own. It hands no environment on to its runtime, so that has to
    be told where everything is."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        names = ("HOLDFAST_POLICY", "HOLDFAST_RUN", "HOLDFAST_HOME", "HOLDFAST_PYTHON", "PATH")
        said = "".join(f"export {name}='{self.environ[name]}'\n" for name in names)
        runtime = folder / "holdfast-runc"
        runtime.write_text(f'#!/bin/sh\n{said}exec {TRAMPOLINE} "$@"\n')
        runtime.chmod(0o755)
        (folder / "containers.conf").write_text(_PODMAN.format(folder=folder, limit=_LIMIT))
        (folder / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        self.environ["CONTAINERS_CONF"] = str(folder / "containers.conf")
        storage = ("--root", str(folder / "root"), "--runroot", str(folder / "runroot"))
        self.words = (_program("podman"), *storage, "--storage-driver", "overlay")
        signed = ("--signature-policy", str(folder / "policy.json"))
        self.call("load", *signed, "-i", str(folder / "image.tar"))

    def close(self) -> None:
        super().close()
        detach(self.folder)
        clear(self.folder)


def _program(name: str) -> str:
    for folder in ("/usr/bin", "/usr/sbin"):  # the package's own, and no other version beside it
        if Path(folder, name).exists():
            return f"{folder}/{name}"
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: run `make setup-test` as root")
    return found
