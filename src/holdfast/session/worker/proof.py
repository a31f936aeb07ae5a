"""Proving records: some objects can be dumped but not loaded, and only loading them tells.

It happens in a forked child, so that nothing the loading does reaches the session.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType

from holdfast.session.worker.aside import ask
from holdfast.session.worker.codes import Place
from holdfast.session.worker.reasons import reason_of
from holdfast.session.worker.surroundings import Surroundings, memory
from holdfast.session.worker.threads import alone
from holdfast.session.worker.unpickler import RecordUnpickler

DEADLINE = 20.0


class Living:
    """The session as it is, for records that refer to it."""

    def __init__(self, around: Surroundings, objects: Mapping[str, object]) -> None:
        self.namespace = around.namespace
        self.secrets: Mapping[str, str] = {}
        self.lost: dict[str, str] = {}
        self._around = around
        self._objects = objects

    def definition(self, label: str) -> object:
        return self._around.objects[label]

    def code(self, place: Place) -> CodeType:
        return self._around.codes.find(place)

    def shared(self, label: str) -> object:
        block = self._around.values.get(label)
        return self._objects[label] if block is None else block.values()

    def memory(self, label: str) -> memoryview:
        return memory(self._around.buffers[label])

    def lay(self, label: str, array: object) -> bool:
        """There is nothing to be mapped: the memory is here."""
        return False

    def made_of(self, array: object, label: str) -> None:
        """Nothing is kept of what is made here."""


# A pickle, the labels of the memory that it takes, and whether it was laid flat.
Proof = tuple[bytes, tuple[str, ...], bool]


def failures(
    records: Sequence[Proof], session: Living, known: Iterable[str] = ()
) -> dict[int, str]:
    """Which of the pickles cannot be loaded, and why. Other threads make it impossible to tell."""
    if not records or not alone():
        return {}
    said = ask(lambda write: _load_all(records, session, write, known), DEADLINE)
    found: dict[int, str] = {}
    for line in said[: said.rfind(b"\n") + 1].splitlines():
        index, reason = json.loads(line)
        if reason:
            found[index] = reason
        else:
            found.pop(index, None)
    # A record that was begun and never ended took the child, or its time, with it.
    return found


def _load_all(records: Sequence[Proof], session: Living, write: int, known: Iterable[str]) -> None:
    for index, (data, buffers, flat) in enumerate(records):
        os.write(write, _line(index, "loading it did not come to an end"))
        try:
            RecordUnpickler(data, session, True, buffers).values(flat)
        except BaseException as error:  # noqa: BLE001  # user code; the parent reports it
            os.write(write, _line(index, reason_of(error, known)))
        else:
            os.write(write, _line(index, ""))


def _line(index: int, reason: str) -> bytes:
    return json.dumps([index, reason]).encode() + b"\n"
