"""Freezing: what a worker does when it is asked for a checkpoint, and what it keeps for the next.

Loaded with the first checkpoint: who only brings one back does not wait for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holdfast.model.secrets import Rule
from holdfast.protocol.session_messages import CapturingMessage, CheckpointMessage, Message
from holdfast.session.worker import ahead
from holdfast.session.worker.blocks import Blocks
from holdfast.session.worker.capture import Capture
from holdfast.session.worker.captured import Captured
from holdfast.session.worker.earlier import Earlier
from holdfast.session.worker.handing import Handed, Outbox, messages
from holdfast.session.worker.interrupts import Interrupts
from holdfast.session.worker.labels import Labels
from holdfast.session.worker.memory import survey
from holdfast.session.worker.memory.tracker import Place, Tracker
from holdfast.session.worker.process_copies import MUCH, ProcessCopies
from holdfast.session.worker.workspace import Workspace

Answer = tuple[Message, int | None]  # and a file that goes with it, which is to be closed then
Send = Callable[[Message, int | None], None]


class Freezer:
    """Captures a workspace, in place or in a copy of the process."""

    def __init__(
        self,
        workspace: Workspace,
        labels: Labels,
        tracker: Tracker,
        interrupts: Interrupts,
        send: Send,
    ) -> None:
        """`send` is for what comes ahead of the answer."""
        self._workspace = workspace
        self._labels = labels
        self._tracker = tracker
        self._interrupts = interrupts
        self._send = send
        self._earlier = Earlier()
        self._blocks = Blocks()
        self._copies = ProcessCopies(labels, tracker, self._blocks)
        self._outbox = Outbox()

    def freeze(self, asked: CheckpointMessage) -> Iterator[Answer]:
        """Capture what there is now; what is to be answered may be made as it is sent. Raises
        whatever a capture meets, and then the session is as it was."""
        started = time.perf_counter()
        self._copies.learn()
        if asked.stood:
            self._copies.stood_still()
        known = self._labels.known_now()
        try:
            return self._freeze(asked, started)
        except BaseException:
            self._labels.know_again(known)
            raise

    def _freeze(self, asked: CheckpointMessage, started: float) -> Iterator[Answer]:
        self._tracker.begin(asked.request_id, asked.base)
        rule = Rule.of(asked.keep_secrets or False, asked.leave_out).after(self._workspace.given)
        if asked.base <= 0 or rule != self._earlier.rule:  # the host has nothing to compare with
            self._earlier = Earlier(rule)
            self._blocks.anew()
        places, objects = survey.look(self._workspace.namespace)
        self._tracker.watch(places)
        beside = asked.beside and self._copies.wanted(sum(size for _, size in places))
        beside = beside and not self._copies.held_back(self._workspace.namespace)
        if asked.ahead and not beside:
            self._send_ahead(asked, places)
        process = os.getpid()
        with self._interrupts.working(asked.request_id):
            capture = self._capture(asked, objects)
            environment = self._workspace.environment()
            if not beside:
                captured = capture.run(environment)
        if os.getpid() != process:
            return iter(())  # a fork of the user's, which has nothing to say
        if beside:
            return _left(asked, started, self._copies.begin(capture, environment, asked))
        return self._handed_over(asked, started, captured, capture)

    def _send_ahead(self, asked: CheckpointMessage, places: Mapping[Place, Any]) -> None:
        """What changed in arrays, which the host works on while the rest is pickled."""
        images = ahead.images(places, self._labels, self._tracker)
        if not images:
            return
        message, file = self._outbox.ahead(images, asked.request_id, asked.base)
        try:
            self._send(message, file)
        finally:
            os.close(file)

    def _capture(self, asked: CheckpointMessage, objects: list[object]) -> Capture:
        workspace = self._workspace
        return Capture(
            workspace.namespace,
            workspace.cells,
            workspace.codes,
            workspace.definitions,
            asked.max_item_bytes,
            self._labels,
            asked.max_checkpoint_bytes,
            self._tracker,
            earlier=self._earlier,
            blocks=self._blocks,
            objects=objects,
            held=self._copies.held,
            at=self._copies.at,
            rule=self._earlier.rule,
        )

    def _handed_over(
        self, asked: CheckpointMessage, started: float, captured: Captured, capture: Capture
    ) -> Iterator[Answer]:
        """A capture that was made in place: left in a file, sent by a copy, or sent at once."""
        request = asked.request_id
        self._copies.took(time.perf_counter() - started, capture.kinds())
        self._tracker.captured(request, captured.places())
        self._blocks.captured(request, captured.blocks, asked.base)
        if asked.beside and captured.weight <= MUCH:
            return _left(asked, started, self._outbox.leave(captured, request, asked.base))
        if asked.beside and captured.needed > MUCH and self._copies.possible():
            return _left(asked, started, self._copies.hand_over(captured, asked))
        return ((each, None) for each in messages(captured, request, started=started))

    def restored(self) -> None:
        """What was known is about a namespace that is no more."""
        self._copies.restored()
        self._blocks.forget()


def _left(asked: CheckpointMessage, started: float, handed: Handed) -> Iterator[Answer]:
    """Where the host finds the capture: a file, or the pipe of the copy that makes it."""
    pause = time.perf_counter() - started
    message = CapturingMessage(
        request_id=asked.request_id, pause_ms=pause * 1000, pid=handed.pid, size=handed.size,
        start=handed.start,
    )  # fmt: skip
    return iter([(message, handed.file)])
