"""An OCI bundle for tests of the wrapper without an engine: its root is an overlay."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

from holdfast.runtime import engines
from holdfast.runtime.trial import clear
from holdfast.testing.containerd import TRAMPOLINE, await_tidied
from holdfast.testing.images import unpack_root
from holdfast.testing.waiting import eventually

_CAPABILITIES = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_MKNOD"]


class Bundle:
    """A container `tc` whose root is an overlay, as engines make them."""

    def __init__(
        self,
        folder: Path,
        args: Sequence[str],
        env: Sequence[str] = (),
        mounts: Sequence[Mapping[str, object]] = (),
    ) -> None:
        self.folder = folder
        for name in ("lower", "upper", "work", "bundle/rootfs"):
            (folder / name).mkdir(parents=True)
        unpack_root(folder / "lower")
        self.environ = {
            **engines.environment(),
            "HOLDFAST_POLICY": str(folder / "policy.toml"),
            "HOLDFAST_RUN": str(folder / "run"),
            "HOLDFAST_HOME": str(folder / "home"),
            "HOLDFAST_PYTHON": sys.executable,
        }
        self.set_policy("")
        self.root = folder / "runc"
        self.bundle = folder / "bundle"
        self._mount()
        (self.bundle / "config.json").write_text(json.dumps(_config(args, env, mounts)))

    def set_policy(self, text: str) -> None:
        """Write the policy; the bundle's own paths are added."""
        lines = [
            f'checkpoint_path = "{self.folder}/checkpoints"',
            f'work_path = "{self.folder}/scratch"',
            f'log = "{self.folder}/runc.log"',
            text,
        ]
        (self.folder / "policy.toml").write_text("\n".join(lines) + "\n")

    def words(self, subcommand: str, *words: str) -> list[str]:
        """runc's arguments for a subcommand about the container."""
        options = ["--root", str(self.root), "--log", str(self.folder / "log.json")]
        extra = []
        if subcommand == "create":
            extra = ["--bundle", str(self.bundle), "--pid-file", str(self.folder / "pid")]
        before = [word for word in words if word.startswith("-")]
        after = [word for word in words if not word.startswith("-")]
        return [*options, "--log-format", "json", subcommand, *extra, *before, "tc", *after]

    def runc(
        self, subcommand: str, *words: str, prefix: Sequence[str] = (), check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Call the wrapper. The container's streams are /dev/null, so only `state` prints."""
        done = subprocess.run(
            [*prefix, str(TRAMPOLINE), *self.words(subcommand, *words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if subcommand == "state" else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.environ,
            timeout=100,
            check=False,
        )
        if check and done.returncode != 0:
            log = self.folder / "log.json"
            raise AssertionError(f"{subcommand}: {log.read_text() if log.exists() else done}")
        return done

    def status(self) -> str:
        """The container's status as the wrapper tells it; `` when there is none."""
        done = self.runc("state", check=False)
        return str(json.loads(done.stdout)["status"]) if done.returncode == 0 else ""

    def count(self) -> int:
        """What the container has counted to, from its layer. While it writes, or when it was
        frozen doing so, the file is empty for a moment."""
        path = self.bundle / "rootfs/count"
        end = time.monotonic() + 2
        while path.exists():
            if (text := path.read_text()) or time.monotonic() > end:
                return int((text or "0").split()[-1])
            time.sleep(0.01)
        return 0

    def renew(self) -> None:
        """A new container of the same name: an empty layer, mounted anew."""
        words = ["umount", str(self.bundle / "rootfs")]
        eventually(
            lambda: subprocess.run(words, check=False).returncode == 0,
            "whoever was killed in it is gone",
        )
        clear(self.folder / "upper")
        (self.folder / "upper").mkdir()
        self._mount()

    def leftovers(self) -> list[str]:
        """What an operation that is over must not have left."""
        await_tidied(self.folder)
        folders = (self.folder / "scratch", self.folder / "checkpoints/.staging")
        found = [str(each) for folder in folders if folder.exists() for each in folder.iterdir()]
        found += [str(each) for each in (self.folder / "run").rglob("operation.json")]
        return found + [str(each) for each in self.folder.glob("upper.holdfast*")]

    def close(self) -> None:
        """End the container and remove everything."""
        self.runc("delete", "--force", check=False)
        await_tidied(self.folder)
        clear(self.folder)

    def _mount(self) -> None:
        place = {name: self.folder / name for name in ("lower", "upper", "work")}
        options = ",".join(f"{name}dir={path}" for name, path in place.items())
        words = ["mount", "-t", "overlay", "overlay", "-o", options, str(self.bundle / "rootfs")]
        subprocess.run(words, check=True)


def _config(
    args: Sequence[str], env: Sequence[str], mounts: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(args),
            "env": ["PATH=/bin", "HOLDFAST_CHECKPOINT=1", *env],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), _CAPABILITIES),
        },
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}, *mounts],
        "linux": {
            "cgroupsPath": f"/holdfast-test-{uuid4().hex}",
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")],
        },
    }
