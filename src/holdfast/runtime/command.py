"""Running an engine's command line: always with a deadline, never through a shell."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended. `code` is None when it never started or had to be killed."""

    argv: tuple[str, ...]
    code: int | None
    stdout: str
    stderr: str
    trouble: str | None = None  # why there is no exit code

    @property
    def succeeded(self) -> bool:
        return self.code == 0

    def reason(self) -> str:
        """The failure in one line: what the program itself said last, if it said anything."""
        if self.trouble is not None:
            return self.trouble
        said = [line.strip() for line in (self.stderr or self.stdout).splitlines() if line.strip()]
        ending = f"ended with code {self.code}"
        return f"{ending}: {said[-1][:300]}" if said else ending


def run(
    argv: Sequence[str | Path],
    *,
    seconds: float,
    environ: Mapping[str, str] | None = None,
    capture: bool = True,
) -> Outcome:
    """Run a command to its end, or kill it and everything it started when the time is over.

    With `capture=False` its standard streams are /dev/null: a program that leaves a child
    behind holding a pipe would otherwise keep us waiting for that child.
    """
    words = tuple(str(word) for word in argv)
    sink = subprocess.PIPE if capture else subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=dict(environ) if environ is not None else None,
            start_new_session=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return Outcome(words, None, "", "", f"could not be started: {error.strerror}")
    try:
        stdout, stderr = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        # A grandchild in a session of its own may still hold the pipes: ask, do not insist.
        try:
            process.communicate(timeout=2)
        except subprocess.TimeoutExpired:
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        return Outcome(words, None, "", "", f"did not end within {seconds:g} s and was killed")
    return Outcome(words, process.returncode, stdout or "", stderr or "")


def kill_group(pid: int) -> None:
    """Kill a process that leads its own group, and the group; gone already is fine."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
