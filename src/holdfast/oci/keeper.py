"""Keeps a server of pages: `keeper.py STATUS STOP... -- SERVE...`, two command lines.

When a server of pages ends before all of them are there, the kernel fills the rest with zeros, and
whoever touches one goes on with them. So the container is ended at once by the first command, and
comes back from its checkpoint; what the exit code of the server was is written to a file, for a
container whose memory is not complete must never be frozen. Runs as a program of its own, with
nothing but the standard library and without `site`, as long as pages are missing.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

_NEVER = "-1000"


def main(status: str, words: list[str]) -> int:
    between = words.index("--")
    # Where memory is short, others must go first.
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_NEVER)
    code = _run(words[between + 1 :])
    if code != 0:
        _run(words[:between])
    if os.path.isdir(os.path.dirname(status)):
        draft = f"{status}.draft"
        with open(draft, "w") as file:
            file.write(str(code))
        os.rename(draft, status)
    return code


def _run(words: list[str]) -> int:
    """The exit code of a command; negative when a signal ended it."""
    pid = os.posix_spawnp(words[0], words, os.environ)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]) != 0)
