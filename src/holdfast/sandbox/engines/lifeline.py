"""A lifeline: what ends a box in which nothing runs yet, when its server is no more.

An agent notices by itself that its server has gone, and ends. Where none has begun, a shell waits
in its place: among the box's own groups, so that it ends with them, and nobody who ends the server
with all that it started ends this, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from subprocess import DEVNULL

from holdfast.model.errors import from_os_error
from holdfast.sandbox.limits import Groups
from holdfast.sandbox.spawning import Spawn

# A word lets it go. The end without one means that nobody holds the other end any more. What is
# just being started is found in another round.
_SHELL = """
read -r word && exit
for round in 1 2 3 4 5 6 7 8 9 10; do
    for each in $(cat "$1"); do
        [ "$each" = $$ ] || kill -9 "$each"
    done
    sleep 0.1
done
"""


class Lifeline:
    """Held as long as this is; of the process that tied it."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    @classmethod
    async def tie(
        cls, groups: Groups, log: Path, environ: Mapping[str, str], spawn: Spawn
    ) -> Lifeline:
        """For whatever is in these groups. Raises HoldfastError."""
        members = groups.folders[0] / "cgroup.procs"
        argv = groups.wrap(["/bin/sh", "-c", _SHELL, "sh", str(members)])
        inner, outer = os.pipe()
        try:
            with open(log, "ab") as errors:
                await spawn(argv, inner, DEVNULL, errors, environ)
        except BaseException as error:
            os.close(outer)
            if isinstance(error, OSError):
                raise from_os_error(error, "watching over a sandbox that waits") from error
            raise
        finally:
            os.close(inner)
        return cls(outer)

    def untie(self) -> None:
        """Let it live on."""
        if self._fd is not None:
            os.write(self._fd, b"go\n")
            self.cut()

    def cut(self) -> None:
        """Let it end, unless it was untied. May be called twice."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
