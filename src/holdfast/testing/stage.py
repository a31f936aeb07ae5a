"""The stage: a warm process that forks an actor for each act, so that thousands of acts are cheap.

An act is a function of a module: `act(note, *arguments)`. What it notes is seen by the caller
however the actor ends: notes go to shared memory and need no system call that a fault could hit.
Faults are strace's: `fdatasync:error=EIO:when=2`, `pwrite64:signal=KILL:when=1`.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.testing.processes import running

Note = dict[str, Any]  # whatever JSON can say
TakeNote = Callable[[Note], None]

_NOTES = 1024 * 1024
_PR_SET_PTRACER = 0x59616D61
_CALL = re.compile(r"^(\d+) +(\w+)\(")


@dataclass(frozen=True, slots=True)
class Performance:
    """What an actor noted, and how it ended: 0, an exit code, or minus a signal's number."""

    status: int
    notes: list[Note]

    def noted(self, key: str) -> list[Any]:
        return [note[key] for note in self.notes if key in note]


class Stage:
    """Forks actors that know the acts of one module. A context manager; one act at a time."""

    def __init__(self, module: str, folder: Path) -> None:
        """`module` is imported as if from `folder`."""
        program = [sys.executable, "-m", "holdfast.testing.stage", module]
        self._server = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            start_new_session=True,
        )

    def __enter__(self) -> Stage:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:  # an actor that never got its cue would begin now, and may never end
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.communicate()

    def perform(self, act: str, *arguments: object, faults: Sequence[str] = ()) -> Performance:
        """Let an actor do one act, with these faults."""
        pid = self._ask({"act": act, "arguments": arguments})["pid"]
        if not faults:
            return self._go()
        calls = ",".join(sorted({fault.partition(":")[0] for fault in faults}))
        inject = [word for fault in faults for word in ("-e", f"inject={fault}")]
        return self._traced(pid, ["-o", "/dev/null", "-e", f"trace={calls}", *inject])

    def count(self, act: str, *arguments: object, calls: Sequence[str]) -> Counter[str]:
        """How often an act makes each of these system calls, in the thread that does so most."""
        pid = self._ask({"act": act, "arguments": arguments})["pid"]
        with tempfile.NamedTemporaryFile("r") as trace:
            done = self._traced(pid, ["-o", trace.name, "-e", f"trace={','.join(calls)}"])
            if done.status != 0 or done.noted("fault"):
                raise RuntimeError(f"{act} does not even work without faults: {done}")
            found = Counter(match.groups() for line in trace if (match := _CALL.match(line)))
        most: Counter[str] = Counter()
        for (_, call), times in found.items():
            most[call] = max(most[call], times)  # strace counts for each thread by itself
        return most

    def _traced(self, pid: int, options: list[str]) -> Performance:
        program = ["strace", "-f", "-p", str(pid), *options]
        with running(program, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr is not None
            said = strace.stderr.readline()
            if "attached" not in said:
                raise RuntimeError(f"strace: {said or 'could not be started'}")
            done = self._go()
            strace.communicate()
        return done

    def _go(self) -> Performance:
        answer = self._ask({})
        return Performance(answer["status"], answer["notes"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        try:
            answer = self._server.stdout.readline()
        except BaseException:  # whoever does not wait any longer would wait for it in the end
            os.killpg(self._server.pid, signal.SIGKILL)
            raise
        if not answer:
            raise RuntimeError("the stage broke down; its words are on standard error")
        found: dict[str, Any] = json.loads(answer)
        return found


class _Actor:
    """A forked process that waits for its cue."""

    def __init__(self, act: Callable[..., None], arguments: Sequence[object]) -> None:
        self._memory = mmap.mmap(-1, _NOTES)
        waiting, self._cue = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._cue)
            # Where only ancestors may trace (Yama), let strace do it all the same.
            ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
            os.read(waiting, 1)
            try:
                act(self._note, *arguments)
            except BaseException:  # noqa: BLE001  # the caller is told, whatever it is
                self._note({"fault": traceback.format_exc()})
            os._exit(0)
        os.close(waiting)

    def play(self) -> dict[str, Any]:
        os.write(self._cue, b"!")
        os.close(self._cue)
        _, status = os.waitpid(self.pid, 0)
        self._memory.seek(0)
        lines = self._memory.read(_NOTES).rstrip(b"\0").splitlines()
        self._memory.close()
        notes = [json.loads(line) for line in lines]
        return {"status": os.waitstatus_to_exitcode(status), "notes": notes}

    def _note(self, note: Note) -> None:
        self._memory.write(json.dumps(note).encode() + b"\n")


def serve(module: str) -> None:
    """Answer requests until standard input ends."""
    sys.path.insert(0, os.getcwd())
    acts = importlib.import_module(module)
    actor: _Actor | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if actor is None:
            actor = _Actor(getattr(acts, request["act"]), request["arguments"])
            answer: dict[str, Any] = {"pid": actor.pid}
        else:
            answer, actor = actor.play(), None
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
