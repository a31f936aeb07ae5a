"""Saves every container of a node before it goes away: in parallel, the most valuable first, by a
deadline.

One rule: a container is stopped only by its own verified checkpoint; whatever goes wrong with one,
it goes on running and is reported so. Each is saved by a process of its own, which can be killed
at the deadline: its guard then undoes what it was doing. So this one asks no store for anything:
whoever has used an object store can fork nobody who uses it, too.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar, cast

import msgspec

from holdfast.model.errors import Denied, HoldfastError
from holdfast.model.readiness import readable
from holdfast.oci.checkpoint_handler import CheckpointHandler
from holdfast.oci.container import Container
from holdfast.oci.engine import Runc
from holdfast.oci.guard import unfinished
from holdfast.oci.overview import Overview
from holdfast.oci.policy import Policy
from holdfast.oci.state import ContainerState, Record

Outcome = Literal["saved", "running", "ended"]
Found = TypeVar("Found")
_UNDO_SECONDS = 10.0  # for a guard to let a container go on after the deadline
_DYING_SECONDS = 5.0  # for a process to end after it was killed
_AGAIN = ("storage_full", "capture_failed")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A container that is to be saved, and what tells whether it comes before another."""

    subject: str
    value: float  # as its owner says
    newest: datetime | None  # checkpoint
    created: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one container."""

    subject: str
    outcome: Outcome
    checkpoint: str | None = None
    reason: str = ""
    kind: str = ""  # of the error
    frozen_ms: float | None = None
    written_bytes: int | None = None
    seconds: float = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What became of all of them, in the order in which they were taken."""

    results: tuple[Result, ...]
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether nothing is lost when the node goes away now."""
        return all(each.outcome != "running" for each in self.results)


def order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The most valuable first; of equal ones those that would lose most: without a checkpoint, or
    with the oldest one, or that have run for longest. Pure."""

    def key(each: Candidate) -> tuple[float, bool, float, str]:
        saved = each.newest.timestamp() if each.newest else 0.0
        return -each.value, each.newest is not None, saved, each.created

    return sorted(candidates, key=key)


class Finalizer:
    """Saves the containers of one node."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        if os.geteuid() != 0:
            raise Denied("freezing containers needs root", hint="sudo holdfast container ...")
        self._environ = environ
        self._overview = Overview(environ)

    def plan(self) -> list[Candidate]:
        """The containers that run here and have opted in, in the order of saving."""
        return order(_apart(self._candidates))

    def _candidates(self) -> list[Candidate]:
        return [
            Candidate(record.subject, record.value, self._overview.newest(record), record.created)
            for state, record in self._overview.known()
            if not state.unstarted and self._status(record) in ("running", "paused", None)
        ]

    def run(
        self,
        deadline: float,
        *,
        jobs: int,
        leave_running: bool = False,
        done: Callable[[Result], None] = lambda result: None,
    ) -> Report:
        """Save them all within so many seconds. Those that failed, perhaps because the others took
        the space or the processors, are tried once more, one by one, when these are done."""
        began = time.monotonic()
        end = began + deadline
        results: dict[str, Result] = {}
        plan = [each.subject for each in self.plan()]

        def settle(result: Result) -> None:
            results[result.subject] = result
            done(result)

        crew = Crew(lambda subject: self._save(subject, end, leave_running), self._interrupted)
        crew.work(plan, end, jobs, settle)
        again = [each for each in plan if results[each].kind in _AGAIN]
        if time.monotonic() < end:
            crew.work(again, end, 1, settle)
        return Report(tuple(results[each] for each in plan), time.monotonic() - began)

    def _save(self, subject: str, end: float, leave_running: bool) -> Result:
        """In a process of its own."""
        began = time.monotonic()
        try:
            state, record = self._overview.find(subject)
            runc = Runc(("--root", record.root), self._environ)
            policy = _hurried(self._overview.policy, end - began)
            container = Container.open(runc, state, policy, self._environ)
            if unfinished(state, _UNDO_SECONDS):
                container.undo()()
            taken = CheckpointHandler(container).take(
                reason="finalize", leave_running=leave_running, hurry=not leave_running
            )
        except HoldfastError as error:
            result = self._interrupted(subject, str(error))
            return msgspec.structs.replace(result, kind=error.kind)
        return Result(
            subject=subject,
            outcome="saved",
            checkpoint=taken.saved.id,
            frozen_ms=round(taken.frozen_ms, 3),
            written_bytes=taken.saved.written_bytes,
            seconds=round(time.monotonic() - began, 3),
        )

    def _interrupted(self, subject: str, reason: str) -> Result:
        """What is so when saving a container came to nothing: ask, do not assume."""
        try:
            state, record = self._overview.find(subject)
        except HoldfastError:
            return Result(subject=subject, outcome="ended", reason="it is gone")
        _await_undone(state)
        status = self._status(record)
        if status is None:
            reason = f"{reason}; runc does not answer, so the container may still be running"
        ended = status in ("stopped", "absent")
        if ended and (killed := state.killed) is not None and killed.by == "checkpoint":
            # It was stopped by a checkpoint of ours.
            newest = _apart(lambda: self._overview.newest_id(record))
            return Result(subject=subject, outcome="saved", checkpoint=newest, reason=reason)
        return Result(subject=subject, outcome="ended" if ended else "running", reason=reason)

    def _status(self, record: Record) -> str | None:
        """The status of a container, or None where runc does not tell. A container of unknown
        status counts as running: a node must not go away under it because of a slow runc."""
        try:
            return Runc(("--root", record.root), self._environ).status(record.id)
        except HoldfastError:
            return None


def _hurried(policy: Policy, seconds: float) -> Policy:
    """A policy with no deadline later than ours."""
    left = max(1.0, seconds)
    return msgspec.structs.replace(policy, checkpoint_seconds=min(policy.checkpoint_seconds, left))


def _await_undone(state: ContainerState) -> None:
    end = time.monotonic() + _UNDO_SECONDS
    while state.operation is not None and time.monotonic() < end:
        if unfinished(state, 0.1):
            return
        time.sleep(0.05)


def _apart(look: Callable[[], Found]) -> Found:
    """What a process of its own finds out. Raises what it raises."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            try:
                told = pickle.dumps((look(), None))
            except HoldfastError as error:
                told = pickle.dumps((None, error))
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(told)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    if not answer:
        raise HoldfastError("the process that looked for checkpoints ended before it had told")
    found, raised = pickle.loads(answer)  # written by ourselves
    if raised is not None:
        raise raised
    return cast(Found, found)


class Crew:
    """Forks a process for each piece of work, some at a time, and kills what is late."""

    def __init__(
        self, work: Callable[[str], Result], interrupted: Callable[[str, str], Result]
    ) -> None:
        self._work = work
        self._interrupted = interrupted

    def work(
        self, subjects: Sequence[str], end: float, jobs: int, done: Callable[[Result], None]
    ) -> None:
        waiting = list(subjects)
        busy: dict[int, tuple[int, str]] = {}  # by the end of a pipe: process and subject
        late = "the deadline came first"
        while waiting or busy:
            if time.monotonic() >= end:
                for pid, _ in busy.values():
                    os.kill(pid, signal.SIGKILL)
                for subject in waiting:
                    done(self._interrupted(subject, late))
                waiting = []
            while waiting and len(busy) < jobs:
                subject = waiting.pop(0)
                reader, pid = self._fork(subject)
                busy[reader] = pid, subject
            if not busy:  # the deadline came before anything was begun
                return
            now = time.monotonic()
            ready = readable(busy, max(0.05, (end if now < end else end + _DYING_SECONDS) - now))
            if not ready and time.monotonic() >= end + _DYING_SECONDS:
                # Not even SIGKILL ends a process that waits for a dead disk. Its container stands
                # still or runs, and the report must not wait for it.
                for reader, (_, subject) in busy.items():
                    os.close(reader)
                    done(self._interrupted(subject, f"{late}, and its process does not end"))
                return
            for reader in ready:
                pid, subject = busy.pop(reader)
                with os.fdopen(reader, "rb") as pipe:
                    told = pipe.read()
                os.waitpid(pid, 0)
                done(
                    msgspec.json.decode(told, type=Result)
                    if told
                    else self._interrupted(subject, late)
                )

    def _fork(self, subject: str) -> tuple[int, int]:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writer)
            return reader, pid
        code = 1
        try:
            os.close(reader)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            told = msgspec.json.encode(self._work(subject))
            os.write(writer, told)  # shorter than a pipe is long
            code = 0
        finally:
            os._exit(code)
