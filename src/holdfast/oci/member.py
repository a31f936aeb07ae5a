"""A running container of this node as a member of a bundle: it stands still while it is bound."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.errors import CaptureFailed, Conflict, all_kinds
from holdfast.model.subject import Subject
from holdfast.oci.overview import Overview
from holdfast.store import Store
from holdfast.store.leases import Borrowed


def runs_here(subject: Subject, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a container of this node is that subject, and this process may freeze it."""
    if os.geteuid() != 0:
        return False
    known = Overview(environ).known()
    return any(record.subject == str(subject) for _, record in known)


class ContainerMember:
    """Binds a container by its subject, through a process that holds it (holding.py)."""

    rank = -2  # dumping it takes longest

    def __init__(
        self, store: Store, subject: Subject, environ: Mapping[str, str] = os.environ
    ) -> None:
        self.store = store
        self.subject = subject
        self.lease: Borrowed | None = None
        self._environ = environ
        self._holder: asyncio.subprocess.Process | None = None
        self._captured: Checkpoint | None = None

    async def pause(self) -> None:
        self._holder = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast.oci.holding", str(self.subject)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=dict(self._environ),
        )
        try:
            await self._answer()
        except BaseException:
            await self.resume()
            raise

    async def capture(self, reason: str, stage: str | None) -> Checkpoint:
        holder = self._holder
        if holder is None or holder.stdin is None:
            raise CaptureFailed(f"{self.subject} is not held")
        holder.stdin.write(json.dumps({"reason": reason, "stage": stage}).encode() + b"\n")
        told = await self._answer()
        if told["token"] is not None:
            self.lease = Borrowed(str(self.subject), int(told["token"]))
        self._captured = await asyncio.to_thread(self.store.resolve, str(told["checkpoint"]))
        return self._captured

    async def enter(self, checkpoint: Checkpoint, trust: bool) -> None:
        if self._captured is None or checkpoint.id != self._captured.id:
            raise Conflict(
                f"{self.subject} runs, and only its engine can bring it back",
                hint="stop it, bring the bundle back, and create it again: it begins with its head",
            )

    async def arrive(self, checkpoint: Checkpoint) -> None:
        """It goes on, and descends from its head."""

    async def resume(self) -> None:
        holder, self._holder, self._captured = self._holder, None, None
        if holder is not None and holder.stdin is not None:
            holder.stdin.close()  # it goes on
            await holder.wait()

    async def _answer(self) -> dict[str, Any]:
        holder = self._holder
        line = await holder.stdout.readline() if holder is not None and holder.stdout else b""
        told: dict[str, Any] = json.loads(line) if line else {"error": {}}
        if "error" in told:
            error = told["error"]
            made = all_kinds().get(str(error.get("kind")), CaptureFailed)
            words = error.get("message") or f"{self.subject} could not be held"
            raise made(str(words), hint=error.get("hint"))
        return told
