"""A machine of its own to type commands on that install things: what is written to /etc, /var/lib,
/usr/local and /run stays in a folder, and what runs ends with it. It has containerd, with an image
that knows its life, and a `systemctl` that starts just that."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from holdfast.runtime import engines
from holdfast.testing.images import write_image
from holdfast.testing.waiting import eventually

IMAGE = "docker.io/library/shop:1"
# Each begins a life of its own, and has it in its memory alone.
LIVE = """
read life < /proc/sys/kernel/random/uuid
while :; do echo $life > /new; busybox mv /new /life; sleep .05; done
"""

_BEGIN = """
cd "$1"
mkdir -p var run etc etc-work local local-work
mount -t overlay -o "lowerdir=/etc,upperdir=$1/etc,workdir=$1/etc-work" overlay /etc
mount -t overlay -o "lowerdir=/usr/local,upperdir=$1/local,workdir=$1/local-work" overlay /usr/local
mount --bind "$1/var" /var/lib
mount --bind "$1/run" /run
mount -t proc proc /proc
touch begun
while :; do sleep 1; done  # which also buries whom nobody waits for
"""
_SYSTEMCTL = """#!/bin/sh
echo "$@" >> {folder}/asked
if [ "$*" = "restart containerd" ]; then
    if [ -e {folder}/pid ]; then kill "$(cat {folder}/pid)"; sleep 1; fi
    setsid containerd > {folder}/containerd.log 2>&1 < /dev/null &
    echo $! > {folder}/pid
    until ctr version > /dev/null 2>&1; do sleep .1; done
fi
"""


class Machine:
    """A context manager. Needs root."""

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        assert os.geteuid() == 0, "this needs root, as installing does"
        self.folder = folder
        programs = folder / "programs"
        for each in (programs, folder / "home", folder / "work"):
            each.mkdir(parents=True)
        for name in ("systemctl", "kubectl"):
            text = _SYSTEMCTL.format(folder=folder) if name == "systemctl" else "#!/bin/sh\n"
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        inherited = {name: v for name, v in engines.environment().items() if "HOLDFAST" not in name}
        self._environ = {
            **inherited,
            "HOME": str(folder / "home"),
            "PATH": f"{programs}:{Path(sys.executable).parent}:{inherited['PATH']}:/usr/sbin:/sbin",
            **(environ or {}),
        }
        own = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
        self._holder = subprocess.Popen([*own, "sh", "-euc", _BEGIN, "sh", str(folder)])

    def __enter__(self) -> Machine:
        eventually((self.folder / "begun").exists, "the machine has begun")
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        self._inside = children.read_text().split()[0]
        write_image(self.folder / "shop.tar", IMAGE, ("sh", "-c", LIVE))
        self.type("systemctl restart containerd")
        self.type(f"ctr image import {self.folder}/shop.tar")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.type("ctr task ls -q | xargs -r -n 1 ctr task rm -f", check=False)
        self._holder.kill()  # and all that is inside with it
        self._holder.wait()

    def type(self, text: str, *, check: bool = True) -> str:
        """Run a piece of shell, each line of which has to succeed; what it prints."""
        done = subprocess.run(
            [
                *("nsenter", "--target", self._inside, "--mount", "--pid"),
                *("sh", "-euc", 'cd "$1"; eval "$2"', "sh", str(self.folder / "work"), text),
            ],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )
        assert not check or done.returncode == 0, (
            f"{text}\nended with {done.returncode}:\n{done.stdout}"
        )
        return done.stdout

    def asked(self) -> list[str]:
        """What systemctl was asked for."""
        return (self.folder / "asked").read_text().splitlines()

    def life(self) -> str:
        """The life that the container leads. What it wrote in an earlier one does not count."""
        # To a file: `ctr` gives up a pipe that it has not opened yet when the command ends.
        said = self.folder / "said"
        inside = f"ctr task exec --exec-id x --log-uri file://{said} shop-1 sh -c"
        self.type(f"{inside} 'rm -f /life'")
        said.unlink(missing_ok=True)
        self.type(f"{inside} 'until [ -e /life ]; do sleep .05; done; cat /life'")
        return said.read_text().strip()

    def create_again(self, text: str) -> str:
        """Remove the container, if there is one, and type again what creates it; its life."""
        self.type("ctr task rm -f shop-1; ctr container rm shop-1", check=False)
        self.type(text)
        return self.life()
