"""A node for tests: a containerd of its own, with private folders and sockets, and `ctr`."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.runtime import engines
from holdfast.runtime.trial import clear, mounts_below
from holdfast.testing.images import NAME, write_image
from holdfast.testing.networks import Network
from holdfast.testing.waiting import eventually

TRAMPOLINE = Path(__file__).resolve().parent.parent / "oci" / "holdfast-runc"
_CONFIG = """\
version = 2
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{folder}/containerd.sock"
[ttrpc]
  address = "{folder}/containerd.ttrpc"
"""


class Node:
    """One containerd. `policy` is the text of its policy; paths in it are the node's own. With a
    network, it and everything that it starts are inside that."""

    def __init__(
        self,
        folder: Path,
        policy: str = "",
        network: Network | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.environ = {
            **engines.environment(),  # plain runc looks for criu on PATH
            "HOLDFAST_POLICY": str(folder / "policy.toml"),
            "HOLDFAST_RUN": str(folder / "run"),
            "HOLDFAST_HOME": str(folder / "home"),
            "HOLDFAST_PYTHON": sys.executable,
            **(environ or {}),
        }
        self.set_policy(policy)
        self._numbers = itertools.count()
        (folder / "containerd.toml").write_text(_CONFIG.format(folder=folder))
        self._log = (folder / "containerd.log").open("wb")
        self._process = subprocess.Popen(
            [
                *(network.prefix if network else ()),
                *(_program("containerd"), "-c", str(folder / "containerd.toml")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self.environ,
        )
        try:
            eventually(lambda: self.ctr("version", check=False).returncode == 0, "containerd is up")
            write_image(folder / "image.tar")
            self.ctr("image", "import", str(folder / "image.tar"))
        except BaseException:
            self.close()
            raise

    def set_policy(self, text: str) -> None:
        """Write the policy; the node's own paths are added."""
        lines = [
            f'checkpoint_path = "{self.folder}/checkpoints"',
            f'work_path = "{self.folder}/work"',
            f'ledger_path = "{self.folder}/ledgers"',
            f'log = "{self.folder}/log/runc.log"',
            text,
        ]
        (self.folder / "policy.toml").write_text("\n".join(lines) + "\n")

    def ctr(
        self, *words: str, check: bool = True, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run `ctr` on this node."""
        done = subprocess.run(
            [_program("ctr"), "-a", str(self.folder / "containerd.sock"), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"ctr {' '.join(words)}: {done.stderr}\n{self.log()}")
        return done

    def run_words(
        self,
        name: str,
        *args: str,
        env: Sequence[str] = ("HOLDFAST_CHECKPOINT=1",),
        mounts: Sequence[str] = (),
        options: Sequence[str] = (),
        runc: Path = TRAMPOLINE,
    ) -> list[str]:
        """The words of a `ctr run` for a container of this node."""
        return [
            "run",
            *("--runc-root", str(self.folder / "runc")),
            *("--fifo-dir", str(self.folder / "fifo")),
            *("--runc-binary", str(runc)),
            *(word for each in env for word in ("--env", each)),
            *(word for each in mounts for word in ("--mount", each)),
            *options,
            *(NAME, name, *args),
        ]

    def run(
        self,
        name: str,
        *args: str,
        env: Sequence[str] = ("HOLDFAST_CHECKPOINT=1",),
        mounts: Sequence[str] = (),
        options: Sequence[str] = (),
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Create and start a container in the background."""
        words = self.run_words(name, *args, env=env, mounts=mounts, options=["-d", *options])
        return self.ctr(*words, check=check)

    def exec(self, name: str, *args: str) -> str:
        """What a command in a container prints. The shim writes it to a file: `ctr` gives up a
        pipe that it has not opened yet when the command ends."""
        number = next(self._numbers)
        printed = self.folder / f"printed-{number}"
        words = ("--exec-id", f"x{number}", "--log-uri", printed.as_uri())
        self.ctr("task", "exec", *words, name, *args)
        text = printed.read_text()
        printed.unlink()
        return text

    def tell(self, name: str, *args: str) -> None:
        """Run a command in a container that ends on account of it, and may take it along: then how
        the command itself ended says nothing."""
        words = ("--exec-id", f"x{next(self._numbers)}")
        self.ctr("task", "exec", *words, name, *args, check=False)

    def checkpoint(self, name: str, *options: str) -> Path:
        """`ctr task checkpoint`; gives the folder with the images that containerd asked for."""
        images = self.folder / f"images-{next(self._numbers)}"
        words = ("--image-path", str(images), "--work-path", str(self.folder / "criu-work"))
        self.ctr("task", "checkpoint", *words, *options, name)
        return images

    def status(self, name: str) -> str:
        """`RUNNING`, `STOPPED`, ... or `` when containerd knows no such task."""
        for line in self.ctr("task", "ls").stdout.splitlines()[1:]:
            fields = line.split()
            if fields[0] == name:
                return fields[2]
        return ""

    def remove(self, name: str, signal: str | None = "9") -> None:
        """End a container and forget it, as an engine does."""
        if signal is not None:
            self.ctr("task", "kill", "-s", signal, name, check=False)
        eventually(lambda: self.status(name) in ("STOPPED", ""), f"{name} has stopped")
        if self.ctr("task", "rm", name, check=False).returncode != 0:
            # Whoever has it in front of them removes it, too.
            eventually(lambda: self.status(name) == "", f"the task of {name} is gone")
        self.ctr("container", "rm", name)

    def log(self) -> str:
        """What the wrapper logged."""
        path = self.folder / "log/runc.log"
        return path.read_text() if path.exists() else ""

    def checkpoints(self, name: str) -> list[Path]:
        """The checkpoints of a container in the node's base path, oldest first."""
        return sorted((self.folder / "checkpoints/default" / name).glob("@*-*"))

    def leftovers(self) -> list[str]:
        """What should not be there once all containers are gone: mounts, scratch, markers."""
        await_tidied(self.folder)
        folders = (self.folder / "work", self.folder / "checkpoints/.staging")
        scratch = [str(each) for folder in folders if folder.exists() for each in folder.iterdir()]
        markers = [str(each) for each in (self.folder / "run").rglob("marker")]
        return [*mounts_below(self.folder), *scratch, *markers, *self._engines()]

    def _engines(self) -> list[str]:
        """Processes of runc or CRIU that still work on something of this node."""
        return [line for line in _working(self.folder) if "criu" in line or "runc " in line]

    def close(self) -> None:
        """End every container and containerd itself, and remove all of it."""
        if self._process.poll() is None:
            for line in self.ctr("container", "ls", "-q", check=False).stdout.split():
                self.ctr("task", "kill", "-s", "9", line, check=False)
                self.ctr("task", "rm", "-f", line, check=False)
                self.ctr("container", "rm", line, check=False)
            self._process.terminate()
            self._process.wait(60)
        self._log.close()
        self.end_leases()
        await_tidied(self.folder)
        clear(self.folder)

    def end_leases(self) -> None:
        """Kill the process that holds the node's leases, as a loss of power would."""
        lock = self.folder / "run/leases.lock"
        if lock.exists():
            with suppress(ProcessLookupError):  # it ends by itself, too
                os.kill(int(lock.read_text()), signal.SIGKILL)


def await_tidied(folder: Path) -> None:
    """Wait until nobody compacts checkpoints below a folder behind everybody's back."""
    eventually(
        lambda: not any("holdfast.oci.tidying" in line for line in _working(folder)),
        "all checkpoints are compacted",
        120,
    )


def _working(folder: Path) -> list[str]:
    """The command lines that name something below a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"{folder}/" in line:
            found.append(line)
    return found


def _program(name: str, environ: Mapping[str, str] = os.environ) -> str:
    found = shutil.which(name, path=f"{environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise FileNotFoundError(f"{name} is not installed: run `make setup-test` as root")
    return found
